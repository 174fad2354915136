"""What a user waits for before anything happens: CPU time of imports, each in a fresh process, interleaved."""

import statistics
import subprocess
import sys

from benchmarks.timing import table

CODE = {
    "import torch": "import torch",
    "import wane": "import wane",
    "import wane; wane.signals": "import wane; wane.signals",
    "wane --help": """
import contextlib, io, sys
sys.argv = ["wane", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    from wane.cli import main
    main()
""",
}
TAIL = "\nimport resource; r = resource.getrusage(resource.RUSAGE_SELF); print(r.ru_utime + r.ru_stime)"


def seconds(code):
    out = subprocess.run([sys.executable, "-c", code + TAIL], capture_output=True, text=True, check=True).stdout
    return float(out.splitlines()[-1])


def main(rounds=7):
    times = {name: [] for name in CODE}
    for _ in range(rounds):
        for name, code in CODE.items():
            times[name].append(seconds(code))
    base = times["import torch"]
    rows = [
        [name, f"{statistics.median(a / b for a, b in zip(t, base, strict=True)):.2f}"] for name, t in times.items()
    ]
    table("Start-up, CPU time relative to `import torch`", ["", "ratio"], rows)


if __name__ == "__main__":
    main()
