# shrinks.sh: sourced by scripts/sim. Shows that a run can be made smaller: that a run by its plan is the run (plan.h, N1), and that of a failure what it
# needs is found, and no more, and that the command which is printed fails in the same way.

# A run by its plan, of which nothing is left out, has the same trace.
goes_by_plan() { # SIM SEED
  cmp -s <("$1" --seed "$2" --seconds 40 --trace) <("$1" --seed "$2" --seconds 40 --trace --only replica:1-7)
}

# Shrinks a run that fails and does what it says: 0 when that fails by the same check at the same instant. OUT has what was printed, OUT.small the small run.
shrinks() { # SIM OUT ARGUMENT...
  local sim=$1 out=$2 said found
  shift 2
  "$sim" "$@" --shrink >"$out" 2>&1 || return 1
  # shellcheck disable=SC2046
  { "$sim" $(sed -n 's|^     replay: scripts/sim ||p' "$out") >"$out.small" 2>&1; } 2>/dev/null && return 1
  said=$(sed -n 's/^SMALL seed [0-9]* //p' "$out")
  # An assertion says no more than what it was, on its last line.
  found=$(sed -n 's/^FAIL seed [0-9]* ([0-9]* replicas) \(at [0-9.]* s: \)[^:]*: /\1/p' "$out.small")
  [ "$said" = "${found:-$(tail -1 "$out.small" | sed "s/^/${said%%: *}: /")}" ]
}

# What CI runs: runs in which members come and go, with fail-overs alone, and another; and a failure that is made up, of which it is known what it needs.
shrinks_ci() { # SIM
  local out seed ok=0 bad=0
  out=$(mktemp)
  for seed in 2 3 14; do
    if goes_by_plan "$1" "$seed"; then
      ok=$((ok + 1))
    else
      bad=$((bad + 1))
      echo "FAIL seed $seed by its plan is another run"
    fi
  done
  if shrinks "$1" "$out" --seed 3 --clients 12 --trap crash:1,partition:1,client:4 --runs 300 && [ "$(wc -l <"$out.small")" -lt 100 ] &&
    grep -q 'replicas 3 -> 1, clients 12 -> 1, others [0-9]* -> 0, faults [0-9]* -> 2,' "$out"; then
    ok=$((ok + 1))
  else
    bad=$((bad + 1))
    cat "$out"
    echo "FAIL a run is not shrunk to what its failure needs"
  fi
  rm -f "$out" "$out.small"
  echo "COUNT $ok $bad"
  [ $bad = 0 ]
}
