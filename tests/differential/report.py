"""report.py: what one part of the comparison has asked and found, and how it is told."""
import collections
import resource
import time

DIFFERENCES_SHOWN = 12
DIFFERENCES_MAX = 200  # that are kept; whoever finds that many has found enough
LEAST_PER_METHOD = 120
LEAST_IN_FULL = 1000
FULL = False  # set once, at the start
PROGRESS_EVERY_S = 30
MEMORY_MAX_MB = 3072  # of the program that asks, in the long form


class Report:
    def __init__(self, what, methods, known, least=LEAST_PER_METHOD):
        self.least = LEAST_IN_FULL if FULL else least
        self.what, self.methods_wanted, self.known_list = what, methods, known
        self.methods = collections.Counter()
        self.errors = collections.Counter()
        self.known = collections.Counter()
        self.differences = []
        self.began = self.told = time.monotonic()

    def count(self, method, outcome=None):
        self.methods[method] += 1
        if outcome is not None:
            self.count_error(method, outcome)
        now = time.monotonic()
        if FULL and now - self.told > PROGRESS_EVERY_S:
            self.told = now
            print(f"PROGRESS {self.what}: {sum(self.methods.values())} requests in {now - self.began:.0f} s, {len(self.differences)} differences", flush=True)

    def count_error(self, method, outcome):
        """outcome: the oracle's, whether it is one or not."""
        if outcome.code == "OK":
            return
        self.errors[f"{outcome.code} {outcome.text}"] += 1
        if outcome.text.startswith("gateway: "):
            self.differ(method, "any", "etcd", method, "a body as json_channel.py takes it for right", outcome.text, "gateway")

    def explained(self, *what):
        """Whether a difference is one of those that are meant; such are counted."""
        for name, _, applies in self.known_list:
            if applies(*what):
                self.known[name] += 1
                return True
        return False

    def differ(self, method, where, target, asked, wanted, got, kind=None):
        """kind: of several differences of one kind only the first is shown."""
        self.differences.append((method, str(where), str(target), str(asked), str(wanted), str(got), (method, kind or str(wanted)[:60])))

    def had_enough(self):
        return len(self.differences) >= DIFFERENCES_MAX

    def rare(self):
        """A method that was asked less often than is wanted, or None."""
        for m in self.methods_wanted:
            if self.methods[m] < self.least:
                return m
        return None

    def finish(self, where, least=True):
        """Prints all of it. Returns how many methods agree, and the number of kinds of differences and shortcomings."""
        methods = ", ".join(f"{m} {self.methods[m]}" for m in self.methods_wanted)
        print(f"TOTAL {self.what}: {sum(self.methods.values())} requests in {time.monotonic() - self.began:.0f} s, {where}: {methods}")
        for text, n in sorted(self.errors.items()):
            print(f"      {n:6} {text}")
        for name, reason, _ in self.known_list:
            print(f"      known: {name} ({self.known[name]} times): {reason}")
        failed = self._print_differences() + self._memory_exceeded()
        parted = {d[0] for d in self.differences}
        if least and not failed:
            for m in self.methods_wanted:
                if self.methods[m] < self.least:
                    print(f"FAIL {m}: only {self.methods[m]} requests, {self.least} wanted")
                    failed += 1
        return len([m for m in self.methods_wanted if self.methods[m] and m not in parted]), failed

    @staticmethod
    def _memory_exceeded():
        if not FULL:
            return 0
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"      memory: {own} MB at most")
        if own <= MEMORY_MAX_MB:
            return 0
        print(f"FAIL memory: {MEMORY_MAX_MB} MB are allowed")
        return 1

    def _print_differences(self):
        shown = set()
        for method, where, target, asked, wanted, got, kind in self.differences:
            if kind in shown:
                continue
            shown.add(kind)
            if len(shown) <= DIFFERENCES_SHOWN:
                print(f"FAIL {method}: {target} answers otherwise ({where})")
                print(f"     asked    {asked[:3000]}\n     etcd     {wanted[:3000]}\n     {target} {got[:3000]}")
        if len(shown) > DIFFERENCES_SHOWN:
            print(f"     and {len(shown) - DIFFERENCES_SHOWN} kinds more")
        return len(shown)
