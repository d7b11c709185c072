# prove.sh: sourced by scripts/sim. Shows that the simulator would notice: each patch in tests/sim/faults puts one fault into a copy of the
# source, and some seed must then fail; without a patch the same seeds must pass. A patch that no longer applies is a failure: bring it up to date.
#
# What the simulator does not play (users, alarms, backups) is put on trial before a test instead: a patch with a line "Test: NAME" in front has to
# fail that one of meson's tests, which passes without it.
#
#   scripts/sim --prove [--seeds N] [--shrink] [NAME...]   at most N seeds each (1500), the faults NAME (all)
#
# The run that found one is made smaller as well, and the small one replayed: of the fault that "shrunk" names, with --shrink of all (shrinks.sh).

# Whether each fault can still be put in, and is in the table of docs/testing.md; takes no time, so CI asks it every day.
faults_apply() {
  local f name why ok=0 bad=0
  for f in "$top"/tests/sim/faults/*.patch; do
    name=$(basename "$f" .patch)
    why=
    patch -s -f -F0 -p1 --dry-run -d "$top" <"$f" >/dev/null 2>&1 || why="the patch does not apply"
    grep -q "^| \`$name\` |" "$top/docs/testing.md" || why=${why:-"docs/testing.md does not name it"}
    if [ -z "$why" ]; then
      ok=$((ok + 1))
    else
      bad=$((bad + 1))
      echo "FAIL $name: $why"
    fi
  done
  echo "COUNT $ok $bad"
  [ $bad = 0 ]
}

# The test that a fault is for; nothing: the simulator.
test_of() { # NAME
  sed -n '/^--- /q;s/^Test: //p' "$top/tests/sim/faults/$1.patch"
}

# Runs one of meson's tests, built as far as it needs: 0 passed, 1 failed, 2 never ran.
run_test() { # NAME OUT
  meson test -C "$copy/build" "$1" >"$2" 2>&1 && return 0
  grep -q "^Fail: *1 *$" "$2" && return 1
  grep -q "^Timeout: *1 *$" "$2" && return 1
  return 2
}

# The reverse of what was applied, even of half of it: a fresh copy of the files it names.
restore() { # NAME
  grep '^+++ b/' "$top/tests/sim/faults/$1.patch" | sed 's|^+++ b/||' | while read -r f; do cp "$top/$f" "$copy/src/$f"; done
}

# Makes the run that is in $copy/out smaller, and says by how much.
shrink_found() { # NAME
  local seed
  seed=$(sed -n 's/^     replay: scripts.sim --seed \([0-9]*\) .*/\1/p' "$copy/out" | head -1)
  if shrinks "$copy/build/tests/sim/sim" "$copy/small" --seed "$seed"; then
    printf '%-28s %s\n' "  seed $seed shrinks:" "$(sed -n '/^SMALL/{n;s/^ *//p}' "$copy/small")"
  else
    cat "$copy/small"
    tail -3 "$copy/small.small" 2>/dev/null
    echo "FAIL $1: seed $seed does not shrink to one that fails in the same way"
    return 1
  fi
}

prove() {
  local seeds=1500 names=() name ok=0 bad=0 out test shrunk=commits_older_terms
  while [ $# -gt 0 ]; do
    case $1 in
      --seeds) seeds=$2; shift ;;
      --shrink) shrunk=all ;;
      *) names+=("$1") ;;
    esac
    shift
  done
  if [ ${#names[@]} -eq 0 ]; then
    for name in "$top"/tests/sim/faults/*.patch; do names+=("$(basename "$name" .patch)"); done
  fi
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  mkdir "$copy/src"
  tar -C "$top" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$copy/src" -xf -
  build_sim "$copy/build" "$copy/src" || { echo "the copy does not build"; echo "COUNT 0 1"; return 1; }
  if "$copy/build/tests/sim/sim" --seeds "$seeds" --one-failure >"$copy/out"; then
    echo "no fault: $seeds seeds pass"
  else
    grep FAIL "$copy/out"
    echo "FAIL without any fault"
    echo "COUNT 0 1"
    return 1
  fi
  for name in $(for name in "${names[@]}"; do test_of "$name"; done | sort -u); do
    if ! run_test "$name" "$copy/out"; then
      tail -20 "$copy/out"
      echo "FAIL $name without any fault"
      echo "COUNT 0 1"
      return 1
    fi
  done
  for name in "${names[@]}"; do
    out=
    test=$(test_of "$name")
    if ! patch -s -f -F0 -p1 -d "$copy/src" <"$top/tests/sim/faults/$name.patch" >"$copy/out" 2>&1; then
      out="FAIL $name: the patch does not apply"
    elif [ -n "$test" ]; then
      run_test "$test" "$copy/out"
      case $? in
        0) out="FAIL $name: $test passes" ;;
        2) out="FAIL $name: does not compile" ;;
      esac
    elif ! build_sim "$copy/build" "$copy/src" 2>"$copy/out"; then
      out="FAIL $name: does not compile"
    else
      "$copy/build/tests/sim/sim" --seeds "$seeds" --one-failure >"$copy/out" 2>&1
      if grep -q '^COUNT [0-9]* 0$' "$copy/out"; then
        out="FAIL $name: not found in $seeds seeds"
      elif ! grep -q '^COUNT' "$copy/out"; then
        out="FAIL $name: the runs were ended from outside"
      fi
    fi
    if [ -n "$out" ]; then
      bad=$((bad + 1))
      echo "$out"
    else
      ok=$((ok + 1))
      if [ -n "$test" ]; then
        printf '%-28s by %s: %s\n' "$name:" "$test" \
          "$(grep -hE '^[^ ]*:[EF]:|assert' "$copy/build/meson-logs/testlog.txt" | head -1 | sed 's/^[^ ]*:[EF]://' | cut -c1-160)"
        restore "$name"
        continue
      fi
      # The last line before the command that replays it says most.
      printf '%-28s after %4s seeds: %s\n' "$name:" "$(awk '/^COUNT/ { print $2 + $3 }' "$copy/out")" \
        "$(grep -E 'assert|ASSERT|^FAIL' "$copy/out" | head -1 | sed 's/^FAIL //' | cut -c1-160)"
      if [ "$shrunk" = all ] || [ "$shrunk" = "$name" ]; then
        shrink_found "$name" || bad=$((bad + 1))
      fi
    fi
    restore "$name"
  done
  echo "COUNT $ok $bad"
  [ $bad = 0 ]
}
