#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh STYLE SCRIPT: prints assembly that carries the reports' style and script inside the program, with the content security
# policy that allows only these two texts. src/html/page.c declares the symbols. Called by the build.
set -eu
style=$1 script=$2

if grep -qi '</\(script\|style\)' "$style" "$script"; then
    echo "embed.sh: a closing tag inside $style or $script would end the element" >&2
    exit 1
fi

# "sha256-..." of a file, for the policy
source_hash() { printf 'sha256-%s' "$(sha256sum "$1" | cut -c1-64 | tr a-f A-F | basenc --base16 -d | base64)"; }

echo '.section .note.GNU-stack,"",%progbits'
echo '.section .rodata'
printf '.global html_style, html_style_end, html_script, html_script_end, html_policy\n'
printf 'html_style: .incbin "%s"\nhtml_style_end: .byte 0\n' "$style"
printf 'html_script: .incbin "%s"\nhtml_script_end: .byte 0\n' "$script"
printf "html_policy: .asciz \"default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'\"\n" \
    "$(source_hash "$style")" "$(source_hash "$script")"
