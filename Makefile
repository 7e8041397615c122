# underspan: builds, installs and checks the agent. `make help` lists the targets.
# Sources, BPF programs and unit tests are found by folder; no file is listed here by name.

VERSION := $(shell sed -n 's/.*UNDERSPAN_VERSION "\(.*\)"/\1/p' src/base/version.h)
PREFIX  ?= /usr/local
DESTDIR ?=

CLANG   ?= $(firstword $(shell command -v clang-19 clang-18 clang-17 clang 2>/dev/null))
BPFTOOL ?= $(firstword $(shell PATH="$$PATH:/usr/sbin:/sbin" command -v bpftool 2>/dev/null) bpftool)
CC      := $(if $(filter default,$(origin CC)),$(or $(CLANG),cc),$(CC))
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-19 clang-format 2>/dev/null))

# a different architecture (aarch64, x86_64), with a tree of headers and libraries: `make MACHINE=aarch64 SYSROOT=DIR`
MACHINE ?= $(shell uname -m)
# the architecture names of the kernel's headers, for BPF's PT_REGS macros
ARCH := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(MACHINE)))

BUILD := build
GEN   := build# what is generated, BPF programs and all, is the same for every build of the agent
ifeq ($(V),1)
  Q :=
  msg :=
else
  Q := @
  msg = @printf '  %-8s %s\n' "$(1)" "$(2)";
endif

ifdef SYSROOT
  BUILD   := build/$(MACHINE)
  GEN     := $(BUILD)
  TARGET  := --target=$(MACHINE)-linux-gnu --sysroot=$(abspath $(SYSROOT))
  LDFLAGS += -fuse-ld=lld
  export PKG_CONFIG_SYSROOT_DIR := $(abspath $(SYSROOT))
  export PKG_CONFIG_LIBDIR := $(abspath $(SYSROOT))/usr/lib/$(MACHINE)-linux-gnu/pkgconfig:$(abspath $(SYSROOT))/usr/share/pkgconfig
endif

# releases: without paths, debug information and libraries that differ between distributions
ifeq ($(RELEASE),1)
  CFLAGS := -O2 -ffile-prefix-map=$(CURDIR)=. -DUNDERSPAN_VERSION='"$(VERSION)"'
  BUILD  := build/release-$(MACHINE)
endif

LIBS     := libbpf libelf zlib libcurl jansson libmicrohttpd libprotobuf-c libcap liblzma
CFLAGS   ?= -O2 -g
ifeq ($(DEBUG),1)
  CFLAGS := -O0 -g3
endif
# with the fuzzer's hooks, inactive without the fuzzer: fuzz targets and sanitized tests share objects
SANITIZED := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -fsanitize=fuzzer-no-link
ifeq ($(SANITIZE),1)
  CFLAGS  := $(SANITIZED)
  LDFLAGS += -fsanitize=address,undefined
  BUILD   := build/sanitize
endif
ifeq ($(SANITIZE),thread)
  CFLAGS  := -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread
  LDFLAGS += -fsanitize=thread
  BUILD   := build/thread
endif
ALL_CFLAGS := $(TARGET) -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wno-missing-field-initializers -Wstrict-prototypes -Wmissing-prototypes \
	-D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -fstack-protector-strong -fPIE -pthread \
	-Isrc -Iinclude -I$(GEN)/include $(CFLAGS)
ALL_LDFLAGS = $(TARGET) -pie -pthread -Wl,-z,relro,-z,now $(LDFLAGS)
# capstone is static, to leave most of it out: src/elf/capstone_archs.c
LDLIBS = -Wl,-Bstatic -lcapstone -Wl,-Bdynamic $(shell pkg-config --libs $(LIBS)) -ldl -lm
ifeq ($(RELEASE),1)
  # The C library, zlib, TLS and curl are the host's. libmicrohttpd.a needs GnuTLS. Debian's libcurl has versioned
  # symbols, further distributions' have none: linked against a stand-in without versions, which fits both.
  CURL_STUB := $(BUILD)/libcurl.so.4
  LDLIBS := -Wl,-Bstatic -lbpf -lelf -ljansson -lmicrohttpd -lprotobuf-c -lcapstone -lcap -llzma -Wl,-Bdynamic -Wl,--as-needed \
	-lz -lgnutls $(CURL_STUB) -ldl -lm
  LDFLAGS += -s -Wl,--exclude-libs,ALL
endif
BPF_CFLAGS := -target bpf -mcpu=v3 -O2 -g -std=gnu11 -Wall -Wextra -Werror \
	-Wno-unused-parameter -Wno-missing-declarations -D__TARGET_ARCH_$(ARCH) \
	-Ivmlinux -Ibpf -Iinclude -idirafter $(SYSROOT)/usr/include/$(MACHINE)-linux-gnu -fno-stack-protector -fdebug-prefix-map=$(CURDIR)=.

SRCS      := $(sort $(shell find src -name '*.c'))
EMBEDDED  := $(BUILD)/sql_files.o $(BUILD)/html_files.o
PROTOS    := $(sort $(shell find src -name '*.proto'))
PROTO_HDR := $(foreach p,$(PROTOS),$(GEN)/include/$(notdir $(p:.proto=.pb-c.h)))
OBJS      := $(SRCS:%.c=$(BUILD)/%.o) $(PROTOS:%.proto=$(BUILD)/%.pb-c.o) $(EMBEDDED)
LIB_OBJS  := $(filter-out $(BUILD)/src/main.o,$(OBJS))
LIB       := $(BUILD)/lib.a
BPF_SRCS  := $(sort $(wildcard bpf/*.bpf.c))
BPF_OBJS  := $(BPF_SRCS:bpf/%.bpf.c=$(GEN)/bpf/%.bpf.o)
SKELETONS := $(BPF_SRCS:bpf/%.bpf.c=$(GEN)/include/%.skel.h)
SQL_FILES := $(sort $(shell find sql -name '*.sql'))
SQL_PARTS := $(wildcard sql/*/*.inc) sql/comments.txt
UNIT_SRCS := $(sort $(wildcard tests/unit/test_*.c))
UNIT_BINS := $(UNIT_SRCS:tests/unit/%.c=$(BUILD)/tests/unit/%)
ROWS_SRCS := $(sort $(wildcard tests/rows/*.c))
ROWS_OBJS := $(ROWS_SRCS:%.c=$(BUILD)/%.o)
ROWS_BIN  := $(BUILD)/tests/rows/rows
FUZZ_SRCS := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BINS := $(FUZZ_SRCS:tests/fuzz/%.c=$(BUILD)/tests/fuzz/%)
FUZZ_OBJS := $(patsubst $(BUILD)/%,$(BUILD)/sanitize/%,$(filter-out $(EMBEDDED),$(LIB_OBJS)))
FUZZ_SECONDS ?= 60

.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.PHONY: all tools deps install doc wheel dist dist-arm64 image fmt fmt-check unit unit-programs e2e e2e-programs fuzz fuzz-programs grafana-scale view-scale sanitize check check-kernels check-dist demo bench sizes pictures soak random servers storm clean help

all: $(BUILD)/underspan ## build the agent (build/underspan)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'
	@echo "  V=1 shows commands, DEBUG=1 builds for the debugger, SANITIZE=1 with ASan and UBSan, SANITIZE=thread with TSan"

# ---- tools: a clear sentence for a missing tool, before the compiler's hundred ----

tools:
	@test -n "$(CLANG)" || { echo "make: no clang found; run 'make deps'" >&2; exit 1; }
	@PATH="$$PATH:/usr/sbin:/sbin" command -v $(BPFTOOL) >/dev/null || { echo "make: no bpftool found; run 'make deps'" >&2; exit 1; }
	@command -v protoc-c >/dev/null || { echo "make: no protoc-c found; run 'make deps'" >&2; exit 1; }
	@pkg-config --exists $(LIBS) capstone || { echo "make: missing $$(pkg-config --print-errors --exists $(LIBS) capstone 2>&1 | sed -n "s/^No package '\(.*\)' found/\1/p" | xargs); run 'make deps'" >&2; exit 1; }

deps: ## install the packages for building (apt; with sudo if needed)
	@deploy/dependencies.sh build

# ---- the agent ----

$(BUILD)/underspan: $(OBJS) $(CURL_STUB)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(OBJS) $(LDLIBS)

ifdef CURL_STUB
$(CURL_STUB): $(OBJS)
	$(Q)for name in $$($(or $(shell command -v llvm-nm-19),nm) -u $(OBJS) | sed -n 's/^ *U \(curl_[a-z0-9_]*\)$$/\1/p' | sort -u); do \
		echo "void $$name(void); void $$name(void) {}"; done > $@.c
	$(Q)$(CC) $(TARGET) $(LDFLAGS) -shared -fPIC -nostdlib -Wl,-soname,libcurl.so.4 -o $@ $@.c
endif

$(BUILD)/src/%.o: src/%.c | tools $(SKELETONS) $(PROTO_HDR)
	$(call msg,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(GEN)/bpf/%.bpf.o: bpf/%.bpf.c | tools
	$(call msg,BPF,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@.full
	$(Q)$(BPFTOOL) gen object $@ $@.full

# bpftool writes to stdout even on failure: the file appears only when complete
$(GEN)/include/%.skel.h: $(GEN)/bpf/%.bpf.o
	$(call msg,SKEL,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf > $@.tmp
	$(Q)mv $@.tmp $@

# messages of src/**/*.proto: structs and decoders
define PROTO_RULES
$(GEN)/include/$(notdir $(1:.proto=.pb-c.h)): $(1) | tools
	$$(call msg,PROTO,$(1))
	$$(Q)mkdir -p $(GEN)/include
	$$(Q)protoc-c --proto_path=$(dir $(1)) --c_out=$(GEN)/include $(notdir $(1))
$(BUILD)/$(1:.proto=.pb-c.o) $(BUILD)/sanitize/$(1:.proto=.pb-c.o): %.o: $(GEN)/include/$(notdir $(1:.proto=.pb-c.h))
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) $$(if $$(findstring /sanitize/,$$@),$$(SANITIZED)) -c $$(<:.h=.c) -o $$@
endef
$(foreach p,$(PROTOS),$(eval $(call PROTO_RULES,$(p))))

# the system calls of this architecture by number, from the kernel's headers
$(GEN)/include/syscall_names.inc:
	$(call msg,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)echo '#include <asm/unistd.h>' | $(CC) $(TARGET) -dM -E - | \
		sed -n 's/^#define __NR_\([a-z0-9_]*\) [0-9]*$$/[__NR_\1] = "\1",/p' > $@.tmp
	$(Q)mv $@.tmp $@
$(BUILD)/src/host/syscall_names.o: $(GEN)/include/syscall_names.inc

# every file under sql/ is carried inside the program, see src/clickhouse/sql_files.h
$(BUILD)/sql_files.S: $(SQL_FILES) $(SQL_PARTS) sql/embed.sh
	$(call msg,SQL,$@)
	$(Q)mkdir -p $(@D)
	$(Q)sql/embed.sh $(BUILD) $(SQL_FILES) > $@.tmp
	$(Q)mv $@.tmp $@

# and the viewer of the HTML reports, see src/html/page.h
$(BUILD)/html/page.js: $(sort $(wildcard src/html/viewer/*.js))
	$(Q)mkdir -p $(@D)
	$(Q)cat $^ > $@
$(BUILD)/html_files.S: src/html/embed.sh src/html/viewer/page.css $(BUILD)/html/page.js
	$(call msg,HTML,$@)
	$(Q)src/html/embed.sh src/html/viewer/page.css $(BUILD)/html/page.js > $@

$(BUILD)/html_files.o: src/html/viewer/page.css $(BUILD)/html/page.js
$(EMBEDDED): %.o: %.S
	$(Q)$(CC) $(TARGET) -c $< -o $@

install: all ## install under DESTDIR and PREFIX
	install -Dm755 $(BUILD)/underspan $(DESTDIR)$(PREFIX)/bin/underspan

# ---- releases ----

doc: all ## man pages, completion, pages of options, tables and metrics, from the program's output (build/doc)
	@deploy/doc/reference.py $(BUILD)/underspan build/doc

wheel: ## the Python wheel that adds thread ids to spans (build/dist)
	@deploy/otel/wheel.sh build/dist

dist: ## tarball, .deb, .rpm, wheel and checksums (build/dist)
	@deploy/dependencies.sh build dist
	@deploy/dist/dist.sh $(MACHINE) $(if $(SYSROOT),$(abspath $(SYSROOT)))
dist-arm64: ## the same for arm64, built here, run on a booted arm64 kernel (root: unpacks Debian's arm64 libraries into build/cache)
	@deploy/dependencies.sh build dist dist-check kernels
	@$(MAKE) all
	@deploy/dist/sysroot.sh arm64 build/cache/sysroot-release-arm64
	@deploy/dist/dist.sh aarch64 $(CURDIR)/build/cache/sysroot-release-arm64
	@tests/dist/run.sh arm64

image: ## the image of deploy/docker/Dockerfile without Docker, from the package of dist: an OCI archive and its digest (root)
	@deploy/dependencies.sh image
	@deploy/docker/image.sh $(ARCHITECTURE)

# ---- checks ----

# programs of the tests link the objects that they need: linking all of them takes a second of CPU per program.
# A thin archive refers to the objects
$(LIB): $(LIB_OBJS)
	$(Q)rm -f $@
	$(Q)ar rcsT $@ $^

$(BUILD)/tests/unit/%: tests/unit/%.c $(LIB)
	$(call msg,TEST,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/unit -MMD -MP $(ALL_LDFLAGS) -o $@ $< $(LIB) $(LDLIBS) -lcmocka

# from events to rows, in one program; the clock is the tests'
$(BUILD)/tests/rows/%.o: tests/rows/%.c | tools $(SKELETONS)
	$(call msg,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/rows -MMD -MP -c $< -o $@

$(ROWS_BIN): $(ROWS_OBJS) $(LIB)
	$(call msg,TEST,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--wrap=clock_gettime -o $@ $(ROWS_OBJS) $(LIB) $(LDLIBS) -lcmocka

unit-programs: $(UNIT_BINS) $(ROWS_BIN)
UNIT_RUNS := $(UNIT_BINS:%=%.run) $(ROWS_BIN).run
.PHONY: $(UNIT_RUNS)
$(UNIT_RUNS): %.run: %
	@$<
unit: $(UNIT_RUNS) ## build and run the unit tests
	@CLANG=$(CLANG) tests/rows/layout.sh
	@/usr/bin/python3 tests/rows/stack.py $(BPF_OBJS)

# every object again, instrumented for the fuzzer and the sanitizers, as with SANITIZE=1; targets link the objects they need
ifneq ($(SANITIZE),1)
$(BUILD)/sanitize/src/%.o: src/%.c | tools $(SKELETONS) $(PROTO_HDR) $(GEN)/include/syscall_names.inc
	$(call msg,FUZZ,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(ALL_CFLAGS) $(SANITIZED) -MMD -MP -c $< -o $@
endif

$(BUILD)/fuzz/lib.a: $(FUZZ_OBJS)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)ar rcs $@ $(FUZZ_OBJS)

$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/lib.a $(EMBEDDED)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(ALL_CFLAGS) $(SANITIZED) -fsanitize=fuzzer -Itests/fuzz -MMD -MP $(ALL_LDFLAGS) \
		-o $@ $< $(BUILD)/fuzz/lib.a $(EMBEDDED) $(LDLIBS)

fuzz-programs: $(FUZZ_BINS)
fuzz: $(FUZZ_BINS) ## search for inputs that break the readers of untrusted data (FUZZ_SECONDS=60 each)
	@tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_BINS)

# programs that replace the agent in a test with exactly known input, and watched programs
# that cannot be Python
E2E_PROGRAMS := $(patsubst tests/e2e/programs/%.c,$(BUILD)/tests/e2e/%,$(wildcard tests/e2e/programs/*.c))
$(BUILD)/tests/e2e/%: tests/e2e/programs/%.c $(LIB)
	$(call msg,TEST,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP $(ALL_LDFLAGS) -o $@ $< $(LIB) $(LDLIBS)

$(BUILD)/tests/e2e/frames: ALL_CFLAGS += -fno-omit-frame-pointer -fno-optimize-sibling-calls
e2e-programs: $(E2E_PROGRAMS)

e2e: all e2e-programs ## the end-to-end tests: real processes, real engine (root)
	@tests/e2e/run.sh

sanitize: ## all tests under ASan and UBSan, then under TSan (root; long; a part of it is in check)
	@deploy/dependencies.sh build check
	@tests/sanitize.sh address --durations=5
	@tests/sanitize.sh thread --durations=5

check-kernels: ## boot real kernels under QEMU, run every tracker under each (minutes; not part of check)
	@deploy/dependencies.sh build kernels
	@$(MAKE) --no-print-directory all
	@tests/vm/run.sh

servers: ## the request ledger on 23 real servers, with a table of the results (root; minutes; a part of check)
	@deploy/dependencies.sh build check servers
	@$(MAKE) --no-print-directory all
	@tests/e2e/run.sh -k test_ledger_servers

grafana-scale: ## every panel of deploy/grafana on 100 million rows (ROWS=N) in less than 2 s (minutes, 10 GB; not part of check)
	@deploy/dependencies.sh build check
	@$(MAKE) --no-print-directory all
	@UNDERSPAN_GRAFANA_ROWS=$(or $(ROWS),100000000) tests/e2e/run.sh -k "test_grafana and test_scale" -s

view-scale: ## time, CPU and memory of the views and of explain over an hour of 500 requests per second with 100 million rows (ROWS=N; minutes; not part of check)
	@deploy/dependencies.sh build check
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 tests/bench/bench_views.py $(or $(ROWS),100000000)

storm: ## ten million context switches, a minute of process starts, of requests: each is counted, nothing grows (root; minutes; not part of check)
	@deploy/dependencies.sh build check servers
	@$(MAKE) --no-print-directory all
	@UNDERSPAN_STORM=10000000 UNDERSPAN_STORM_SECONDS=60 tests/e2e/run.sh -k "test_off_cpu_storm or test_process_storm or test_full_speed" -s

check: ## install missing packages, build, run every test; ends with the time of each stage
	@tests/check.sh

check-dist: dist ## the files of dist in clean roots of Debian's releases and under a booted systemd, the quick start (root; minutes; not part of check)
	@deploy/dependencies.sh dist-check
	@tests/dist/run.sh

demo: ## install missing packages, build, and show where requests' time goes
	@deploy/dependencies.sh build demo
	@$(MAKE) --no-print-directory -j"$$(nproc)" all
	@deploy/demo/demo.sh

$(BUILD)/tests/bench/%: tests/bench/%.c $(LIB)
	$(call msg,BENCH,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP $(ALL_LDFLAGS) -o $@ $< $(LIB) $(LDLIBS)

bench: ## OVERHEAD: the agent's cost by workload, beside peers, with the governor, then more (root; half an hour; SHORT=1: four minutes)
	@deploy/dependencies.sh build bench
	@$(MAKE) --no-print-directory all $(BUILD)/tests/bench/bench_rows
	@/usr/bin/python3 tests/bench/overhead.py $(if $(SHORT),--short)
ifndef SHORT
	@/usr/bin/python3 tests/bench/bench_bpf.py
	@/usr/bin/python3 tests/bench/bench_agent.py
	@/usr/bin/python3 tests/bench/bench.py
	@/usr/bin/python3 tests/bench/bench_switches.py
	@/usr/bin/python3 tests/bench/bench_stacks.py
	@/usr/bin/python3 tests/bench/bench_attach.py
endif

sizes: ## rows and bytes that a service's requests cost in the database, with the defaults (root; four minutes; UNDERSPAN_WRITE_TABLE=1: into the guide)
	@deploy/dependencies.sh build bench check
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 tests/bench/sizes.py

pictures: ## deploy/doc/pictures, the pictures of deploy/doc/reports.md: real reports of real services in a browser (root; two minutes)
	@deploy/dependencies.sh build demo pictures
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 deploy/doc/pictures.py

SECONDS ?= 600
soak: ## ten minutes (SECONDS=N) under full load: does anything grow? (root; LEAK=memory, fds, maps: must be noticed)
	@deploy/dependencies.sh build check
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 tests/bench/soak.py $(SECONDS) $(LEAK)

random: ## random requests to random servers: does each row agree with the clocks of client and handler? (root; SEEDS=1-40, KINDS=gunicorn-sync,twisted)
	@deploy/dependencies.sh build check servers
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 tests/random/run.py $(or $(SEEDS),1-40) $(KINDS)

C_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' | grep -v '^vmlinux/')
fmt: ## format the C sources
	$(Q)$(CLANG_FORMAT) -i $(C_FILES)
fmt-check: ## fail on an unformatted C source, or a wrong include between src's folders
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)
	$(Q)tests/layers.py

clean: ## remove build products (not the downloads in build/cache)
	rm -rf $(BUILD)/src $(BUILD)/bpf $(BUILD)/include $(BUILD)/tests $(BUILD)/fuzz $(BUILD)/underspan $(BUILD)/sql $(BUILD)/sql_files.* \
		$(BUILD)/html $(BUILD)/html_files.* $(LIB) \
		$(BUILD)/sanitize $(BUILD)/thread build/doc build/release-* build/dist build/dist.*

-include $(OBJS:.o=.d) $(BPF_OBJS:.o=.d) $(UNIT_BINS:=.d) $(ROWS_OBJS:.o=.d) $(E2E_PROGRAMS:=.d) $(FUZZ_OBJS:.o=.d) $(FUZZ_BINS:=.d)
