"""count_tests.py TESTLOG.json: what meson's tests did, a line each, and their number of checks: "COUNT passed failed".

A libcheck program counts as many tests as it says it ran; any other as one. No test at all is a failure.
"""
import json
import re
import sys

passed = failed = 0
with open(sys.argv[1], encoding="utf-8") as log:
    for line in log:
        test = json.loads(line)
        out = test.get("stdout", "") + test.get("stderr", "")
        checks = [tuple(map(int, m)) for m in re.findall(r"Checks: (\d+), Failures: (\d+), Errors: (\d+)", out)]
        run = sum(c for c, _, _ in checks) or 1
        bad = sum(f + e for _, f, e in checks)
        if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
            bad = bad or 1
            print(f"FAIL {test['name']} ({test['result']})")
            print("\n".join(out.splitlines()[-40:]))
        elif test["result"] == "SKIP":
            print(f"SKIP {test['name']}")
            continue
        print(f"{test['name']}: {run - bad} of {run}, {test['duration']:.1f} s")
        passed += run - bad
        failed += bad
if passed + failed == 0:
    failed = 1
    print("FAIL no test was run")
print(f"COUNT {passed} {failed}")
