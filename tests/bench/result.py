"""The figures that a benchmark measured, as one JSON file: the object that tests/bench/result.h describes."""
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile


def quantile(values, q):
    """Interpolated; 0 <= q <= 1."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    below = int(at)
    value = ordered[below]
    if below + 1 < len(ordered):
        value += (at - below) * (ordered[below + 1] - ordered[below])
    return value


def six_digits(value):
    return float(f"{value:.6g}")


def machine(gpu=None):
    cpu = "unknown"
    try:
        with open("/proc/cpuinfo") as lines:
            cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    found = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "load": six_digits(os.getloadavg()[0])}
    if gpu:
        found["gpu"] = gpu
    return found


def commit():
    """The commit of the checkout that has this file; a GPU machine has no git, and needs DRT_COMMIT."""
    command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    except OSError:
        return "unknown"


class Result:
    """Takes `--json FILE` out of argv (sys.argv); without it write() does nothing."""

    def __init__(self, name, argv=None, gpu=None):
        argv = sys.argv if argv is None else argv
        self.path = None
        if "--json" in argv:
            at = argv.index("--json")
            if at + 1 == len(argv):
                sys.exit(f"{name}: --json needs the name of a file")
            self.path = argv[at + 1]
            del argv[at:at + 2]
        self.object = {"name": name, "commit": os.environ.get("DRT_COMMIT") or commit(),
                       "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
                       "command": shlex.join(argv), "machine": machine(gpu), "figures": []}

    def figure(self, name, unit, values, peer=None, ratio=None):
        """values: a number or a list of them. ratio: how many times as fast as peer, or the share of that limit."""
        values = list(values) if hasattr(values, "__iter__") else [values]
        entry = {"name": name, "unit": unit, "median": six_digits(quantile(values, 0.5)),
                 "q1": six_digits(quantile(values, 0.25)), "q3": six_digits(quantile(values, 0.75)), "n": len(values)}
        if peer is not None:
            entry.update(peer=peer, ratio=six_digits(ratio))
        self.object["figures"].append(entry)

    def write(self):
        if self.path:
            write_object(self.path, self.object)


def text_of(result):
    """A line for each figure, as in result.c."""
    head = {key: value for key, value in result.items() if key != "figures"}
    lines = ",\n".join("  " + json.dumps(figure, ensure_ascii=False) for figure in result["figures"])
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ',\n "figures": [\n' + lines + "\n ]\n}\n"


def write_object(path, result):
    """The file appears completely or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
            try:
                file.write(text_of(result))
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                os.unlink(file.name)
                raise
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}: the result was not written")
