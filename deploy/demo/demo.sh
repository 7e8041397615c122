#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make demo`: runs underspan with its embedded store beside a real nginx -> gunicorn -> Django service, drives
# the service into a full hand-off queue and long garbage collections, shows where the requests' time went, then
# applies two fixes and shows the same load again; then two services without spans, by the request ledger alone. Two minutes.
# `make demo KEEP=1` then leaves the service, the agent and the store running until Ctrl-C and prints commands to try.
# Everything lives in one temporary directory and in processes of this script; both are removed at any end of the script. Only
# underspan runs as root.
set -euo pipefail
cd "$(dirname "$0")/../.."

began=$SECONDS
dir=''
gunicorn='' nginx='' agent='' client='' service=''

# Progress is printed on terminals only.
stage() { [ ! -t 2 ] || printf '[%2d s] %s\n' $((SECONDS - began)) "$*" >&2; }

fail() {
    printf 'underspan: %s\n' "$1" >&2
    [ -z "${2:-}" ] || [ ! -s "$2" ] || { printf 'The last lines of its log:\n' >&2; tail -n 15 "$2" >&2; }
    exit 1
}

as_root=() # prefix of commands that need root
[ "$(id -u)" = 0 ] || as_root=(sudo)

# No child outlives ten minutes (a day with KEEP), or a stop by more than eight seconds, in any case.
lifetime=600
[ -z "${KEEP:-}" ] || lifetime=86400
limited() { exec timeout --foreground -k 8 $lifetime "$@" 9>&- < /dev/null; }

stop() { # a child's pid, or nothing
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

stop_shop() {
    stop "$nginx"
    stop "$gunicorn"
    nginx='' gunicorn=''
}

finish() {
    local status=$?
    trap '' INT TERM HUP
    trap - EXIT
    stop "$client"
    stop "$service"
    stop_shop
    if [ -n "$agent" ]; then
        exec 9>&- # see start_agent
        wait "$agent" 2>/dev/null || true
    fi
    [ -z "$dir" ] || "${as_root[@]}" rm -rf "$dir"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Runs a command as a child and waits: unlike a command in the foreground, `wait` lets traps run at once.
run() {
    local status=0
    "$@" 9>&- &
    client=$!
    wait "$client" || status=$?
    client=''
    return $status
}

until_true() { # SECONDS COMMAND...: tries the command until it succeeds or the time is over
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $deadline ] || return 1
        run sleep 0.1
    done
}

# underspan runs as root, behind sudo if needed, out of reach of our signals. A shell beside
# underspan stops the agent when our end of the pipe (descriptor 9) closes, on purpose or by our death.
start_agent() {
    # shellcheck disable=SC2016
    local keeper='trap : INT TERM HUP
        exec 3<&0
        timeout --foreground -k 8 '$lifetime' "$@" < /dev/null &
        agent=$!
        { cat <&3; kill $agent; } > /dev/null 2>&1 &
        while kill -0 $agent 2> /dev/null; do wait $agent; done'
    exec 9> >(exec "${as_root[@]}" sh -c "$keeper" keeper "$underspan" run --store="$dir/store" \
        --flush_interval=1 --request.min_duration_us=0 --governor.cpu_percent=0 > "$dir/underspan.log" 2>&1)
    agent=$!
    until_true 30 agent_ready || fail "underspan did not start within 30 s" "$dir/underspan.log"
    mkdir -m 700 "$dir/client"
    "${as_root[@]}" cat "$dir/store/endpoint" > "$dir/client/endpoint"
    "${as_root[@]}" cat "$dir/store/password" > "$dir/client/password"
    DEMO_CLICKHOUSE=$(cat "$dir/client/endpoint")
    UNDERSPAN_CLICKHOUSE_PASSWORD=$(cat "$dir/client/password")
    export DEMO_CLICKHOUSE UNDERSPAN_CLICKHOUSE_PASSWORD
    local file
    for file in sql/otel/*.sql; do
        sql - < "$file" || fail "underspan sql could not apply $file" "$dir/underspan.log"
    done
    # the agent has created tables; the views that join spans need the spans' tables, which exist now
    "$underspan" schema --clickhouse="$DEMO_CLICKHOUSE" --apply 2>> "$dir/underspan.log" ||
        fail "underspan schema could not make the views" "$dir/underspan.log"
}

agent_ready() {
    kill -0 "$agent" 2>/dev/null || fail "underspan ended while starting" "$dir/underspan.log"
    "${as_root[@]}" test -e "$dir/store/endpoint" &&
        "${as_root[@]}" "$underspan" sql --store="$dir/store" 'SELECT count() FROM ebpf_handoff' > /dev/null 2>&1
}

sql() { "$underspan" sql --clickhouse="$DEMO_CLICKHOUSE" "$@"; }

start_shop() { # THREADS FREEZE
    rm -f "$dir/gunicorn.port"
    DEMO_THREADS=$1 DEMO_FREEZE=$2 limited /usr/bin/gunicorn -c deploy/demo/gunicorn.conf.py app:application \
        > "$dir/gunicorn.log" 2>&1 &
    gunicorn=$!
    until_true 60 gunicorn_ready || fail "gunicorn did not start within 60 s" "$dir/gunicorn.log"
    shop_port=$(cat "$dir/gunicorn.port")
    start_nginx
    since=$(date +%s)
    until_true 15 observed || fail "underspan saw no hand-off in the shop within 15 s" "$dir/underspan.log"
}

gunicorn_ready() {
    kill -0 $gunicorn 2>/dev/null || fail "gunicorn ended while starting" "$dir/gunicorn.log"
    [ -e "$dir/gunicorn.port" ]
}

free_port() { /usr/bin/python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# nginx cannot ask the kernel for a port: take a free port, and a different port if lost to a race.
start_nginx() {
    local attempt
    for attempt in 1 2 3; do
        port=$(free_port)
        sed -e "s|@USER@|$nginx_user|; s|@DIR@|$dir|; s|@PORT@|$port|" \
            -e "s|@GUNICORN_PORT@|$shop_port|" deploy/demo/nginx.conf > "$dir/nginx.conf"
        limited /usr/sbin/nginx -e "$dir/nginx.log" -p "$dir" -c "$dir/nginx.conf" > "$dir/nginx.out" 2>&1 &
        nginx=$!
        if until_true 10 nginx_decided && kill -0 $nginx 2>/dev/null; then return; fi
        wait $nginx || true
        nginx=''
        stage "nginx did not start with port $port (attempt $attempt)"
    done
    fail "nginx did not start" "$dir/nginx.log"
}

nginx_decided() { ! kill -0 $nginx 2>/dev/null || fetch /price; }

fetch() { curl -fs --noproxy '*' -o /dev/null --max-time 5 "http://127.0.0.1:$port$1"; }

# The shop is warm and watched: a request has become a row.
observed() {
    fetch /price || return 1
    [ "$(sql --format=TabSeparated "SELECT count() > 0 FROM ebpf_handoff WHERE start_time >= $since AND local_port = $shop_port")" = 1 ]
}

drive() { # PHASE: the same load each time
    local story
    for story in queue gc; do
        stage "$1 the fixes: load of story '$story'"
        run /usr/bin/python3 deploy/demo/load.py $story "$1" "$port" "$dir/client" ||
            fail "the load could not be run" "$dir/gunicorn.log"
    done
    run /usr/bin/python3 deploy/demo/report.py settled "$1" queue
    run /usr/bin/python3 deploy/demo/report.py settled "$1" gc
}

tell() { # STORY: the slowest requests, and the slowest in detail
    local slowest
    run /usr/bin/python3 deploy/demo/report.py story before "$1" 3> "$dir/slowest"
    read -r -a slowest < "$dir/slowest" || true # without a newline
    printf '\n'
    run "$underspan" explain --clickhouse="$DEMO_CLICKHOUSE" "${slowest[0]}"
    run /usr/bin/python3 deploy/demo/agree.py "${slowest[@]:0:3}" || fail "two answers to one question"
}

# A service without OpenTelemetry, at a free port; a load, and the ledger's answer.
tell_ledger() { # STORY COMMAND..., with @PORT@
    local story=$1 log=$dir/$1.log
    shift
    port=$(free_port)
    limited "${@//@PORT@/$port}" > "$log" 2>&1 &
    service=$!
    until_true 30 service_ready || fail "the service did not start within 30 s" "$log"
    stage "load of story '$story'"
    run /usr/bin/python3 deploy/demo/ledger.py "$story" "$port" || fail "the load could not be run" "$log"
    stop "$service"
    service=''
}

# ready when watched: a request has become a row
service_ready() {
    kill -0 "$service" 2>/dev/null || fail "the service ended while starting"
    fetch /warm || return 1
    [ "$(sql --format=TabSeparated "SELECT count() > 0 FROM ebpf_request WHERE server_port = $port AND start_time >= '$DEMO_SINCE'")" = 1 ]
}

# Leaves everything running until Ctrl-C, with the shop as it was at first: what to try.
keep() {
    trap 'exit 0' INT
    start_shop 2 0
    local as='' on=" --store=$dir/store"
    [ "$(id -u)" = 0 ] || as='sudo '
    cat << END

Everything runs until Ctrl-C, then it is removed. In a second terminal, in $PWD:
  curl http://127.0.0.1:$port/orders                              a request
  /usr/bin/python3 -c 'import concurrent.futures as c, urllib.request as u; list(c.ThreadPoolExecutor(8).map(u.urlopen, ["http://127.0.0.1:$port/orders"] * 40))'
                                                                  40 requests, 8 at a time: more than 2 threads serve
  ${as}build/underspan requests$on --since=10m        the slowest requests, with their ids
  ${as}build/underspan explain$on ID                  one of them, part by part
  ${as}build/underspan gil -p $(pgrep -P $gunicorn -n || echo $gunicorn)                              who waited for the GIL
  ${as}build/underspan sql$on 'SELECT method, path, status, duration_ms FROM ebpf_request ORDER BY duration_ns DESC LIMIT 5'
END
    run sleep $lifetime
}

underspan=$PWD/build/underspan
[ -x "$underspan" ] || fail "build/underspan is missing; run 'make demo'"
for tool in /usr/sbin/nginx /usr/bin/gunicorn curl; do
    command -v $tool > /dev/null || fail "$tool is missing; run 'make demo'"
done
if [ "$(id -u)" = 0 ]; then
    nginx_user="user $(id -un);"
else
    nginx_user=''
    sudo -v || fail "underspan needs root to load BPF programs; run this as root or as a user with sudo"
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/underspan-demo.XXXXXX")
chmod 711 "$dir" # the store's own user passes through
export DEMO_DIR=$dir DEMO_STORE=$dir/client DEMO_UNDERSPAN=$underspan
DEMO_SINCE=$(date -u '+%Y-%m-%d %H:%M:%S')
export DEMO_SINCE
stage "OpenTelemetry for Python"
run deploy/demo/fetch_otel.sh > "$dir/otel"
otel=$(cat "$dir/otel")
export PYTHONPATH=$PWD/deploy/demo:$PWD/deploy/otel:$otel PYTHONDONTWRITEBYTECODE=1

stage "underspan and its store"
start_agent
stage "nginx, gunicorn with 2 threads, Django, a catalogue of a million objects"
start_shop 2 0
drive before
tell queue
tell gc
stop_shop
stage "the same with 16 threads and a frozen catalogue"
start_shop 16 1
drive after
run /usr/bin/python3 deploy/demo/report.py compare
stop_shop
stage "the same questions to services without spans"
tell_ledger sync /usr/bin/gunicorn --bind=127.0.0.1:@PORT@ --workers=2 small_app:wsgi
tell_ledger loop /usr/bin/python3 -m uvicorn --port=@PORT@ --log-level=warning small_app:asgi
[ -z "${KEEP:-}" ] || keep
stage "done"
