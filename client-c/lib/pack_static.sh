#!/bin/sh
# pack_static.sh LD OBJCOPY AR PARTS OUT: one object of all that is in the archive PARTS, in which only hf_* is seen from outside: what an application calls its own
# functions is none of our business.
set -e
ld=$1 objcopy=$2 ar=$3 parts=$4 out=$5
"$ld" -r -o "$out.o" --whole-archive "$parts"
"$objcopy" --wildcard --keep-global-symbol='hf_*' "$out.o"
rm -f "$out"
"$ar" rcs "$out" "$out.o"
rm -f "$out.o"
