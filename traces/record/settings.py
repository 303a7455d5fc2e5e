"""Records small PyTorch programs under settings of its allocator, for traces/settings/.

    python3 traces/record/settings.py OUT

needs a GPU, PyTorch 2.11 and about three minutes. It writes OUT/settings.tar with a recording for each program and
setting, `figures.jsonl` with what PyTorch itself counted in each run, and `log.txt`.
"""

import argparse
import concurrent.futures
import gzip
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback

MIB = 1 << 20
RUNS_AT_A_TIME = 8
SECONDS_PER_RUN = 60
SECONDS_IN_ALL = 225

# Settings without a limit of memory, as PYTORCH_ALLOC_CONF names them.
UNLIMITED = {
    "expandable": "expandable_segments:True",
    "split64": "max_split_size_mb:64",
    "split128": "max_split_size_mb:128",
    "split256": "max_split_size_mb:256",
    "round4": "roundup_power2_divisions:4",
    "roundlist": "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "nonsplit": "max_split_size_mb:64,max_non_split_rounding_mb:100",
    "split128-round4": "max_split_size_mb:128,roundup_power2_divisions:4",
    "expandable-round8": "expandable_segments:True,roundup_power2_divisions:8",
    "async": "backend:cudaMallocAsync",
}
# Settings under a limit that lies between what the program holds and what PyTorch reserves for it by default.
LIMITED = {
    "default": "",
    "expandable": "expandable_segments:True",
    "split64": "max_split_size_mb:64",
    "gc60": "garbage_collection_threshold:0.6",
    "gc80-split128": "garbage_collection_threshold:0.8,max_split_size_mb:128",
    "gc60-expandable": "garbage_collection_threshold:0.6,expandable_segments:True",
    "split64-expandable": "max_split_size_mb:64,expandable_segments:True",
    "gc80-round4": "garbage_collection_threshold:0.8,roundup_power2_divisions:4",
}
TIGHT = ["default", "expandable", "split64", "gc60", "gc60-expandable"]


def transformer(torch, step):
    from torch import nn

    torch.manual_seed(1)
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.1, batch_first=True) for _ in range(4)
    ).cuda()
    embedding = nn.Embedding(12000, 384).cuda()
    head = nn.Linear(384, 12000).cuda()
    parameters = [*layers.parameters(), *embedding.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=False)
    choose = random.Random(1)

    def train():
        tokens = torch.randint(0, 12000, (choose.randint(4, 24), choose.randint(96, 512)), device="cuda")
        hidden = embedding(tokens)
        for layer in layers:
            hidden = layer(hidden)
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(8):
        step(train)


def convnet(torch, step):
    from torch import nn

    torch.manual_seed(2)
    parts, width = [nn.Conv2d(3, 48, 3, padding=1)], 48
    for _ in range(4):
        parts += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        parts += [nn.Conv2d(width, width * 2, 1), nn.ReLU()]
        width *= 2
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)
    choose = random.Random(2)

    def train():
        side = choose.choice([96, 112, 128, 160])
        images = torch.randn(choose.randint(8, 56), 3, side, side, device="cuda")
        model(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(14):
        step(train)


def mlp(torch, step):
    from torch import nn

    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 3000)
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    choose = random.Random(3)

    def train():
        rows = torch.randn(choose.randint(500, 20000), 1024, device="cuda")
        model(rows).logsumexp(1).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(20):
        step(train)


def streams(torch, step):
    choose = random.Random(4)
    made = [torch.cuda.Stream() for _ in range(3)]
    kept = []

    def work():
        for _ in range(25):
            stream, other = choose.sample(made, 2)
            with torch.cuda.stream(stream):
                block = torch.empty(int(2 ** choose.uniform(9, 27.5)), dtype=torch.uint8, device="cuda")
                block.zero_()
            if choose.random() < 0.4:
                other.wait_stream(stream)
                with torch.cuda.stream(other):
                    block.add_(1)
                block.record_stream(other)
            kept.append(block)
            del block
            while len(kept) > 24 or (kept and choose.random() < 0.45):
                kept.pop(choose.randrange(len(kept)))
        torch.cuda.synchronize()

    for _ in range(40):
        step(work)


def sizes(torch, step):
    choose = random.Random(5)
    kept = []

    def work():
        for _ in range(25):
            exponent = choose.uniform(9, 21) if choose.random() < 0.5 else choose.uniform(20, 28.8)
            kept.append(torch.empty(int(2**exponent), dtype=torch.uint8, device="cuda"))
            while len(kept) > 40 or (kept and choose.random() < 0.47):
                kept.pop(choose.randrange(len(kept)))

    for number in range(60):
        step(work)
        if number == 30:
            torch.cuda.empty_cache()


PROGRAMS = {"transformer": transformer, "convnet": convnet, "mlp": mlp, "streams": streams, "sizes": sizes}


def is_shortage(error):
    return "out of memory" in str(error) or "ALLOC_FAILED" in str(error)


def run_program(arguments):
    """Runs one program in this process, writes its recording, and prints its figures as one line."""
    import torch

    torch.cuda.init()
    memory = torch.cuda.memory
    native = "MallocAsync" not in arguments.conf
    figures = {"name": arguments.name, "program": arguments.program, "settings": arguments.conf}
    figures["torch"] = torch.__version__
    figures["device_bytes"] = torch.cuda.mem_get_info()[1]
    figures["device_properties_bytes"] = torch.cuda.get_device_properties(0).total_memory
    if native:
        memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=100_000)
    if arguments.limit > 0:
        fraction = arguments.limit / figures["device_bytes"]
        torch.cuda.set_per_process_memory_fraction(fraction)
        figures["limit_bytes"] = int(fraction * figures["device_bytes"])
    failed = []

    def step(work):
        try:
            work()
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            failed.append(str(error)[:200])

    try:
        PROGRAMS[arguments.program](torch, step)
    except Exception as error:
        figures["ended_by"] = f"{type(error).__name__}: {error}"[:300]
    torch.cuda.synchronize()
    stats = memory.memory_stats()
    for key in (
        "num_alloc_retries",
        "num_ooms",
        "num_device_alloc",
        "num_device_free",
        "reserved_bytes.all.peak",
        "reserved_bytes.all.current",
        "allocated_bytes.all.peak",
        "active_bytes.all.peak",
        "requested_bytes.all.peak",
        "inactive_split_bytes.all.peak",
        "segment.all.peak",
        "oversize_allocations.peak",
        "oversize_segments.peak",
        "max_split_size",
    ):
        figures[key] = stats.get(key)
    figures["failed_steps"] = len(failed)
    figures["first_failure"] = failed[0] if failed else None
    if native:
        snapshot = memory._snapshot()
        figures["trace_entries"] = [len(trace) for trace in snapshot["device_traces"]]
        for trace in snapshot["device_traces"]:
            for entry in trace:
                # Empty fields of each event would only make the file larger.
                for key in ("frames", "compile_context", "user_metadata"):
                    if key in entry and not entry[key]:
                        del entry[key]
        with open(arguments.file, "wb") as file:
            file.write(gzip.compress(pickle.dumps(snapshot, protocol=4), 9, mtime=0))
    print("FIGURES " + json.dumps(figures), flush=True)


class Recorder:
    def __init__(self, folder):
        self.folder = folder
        self.end = time.monotonic() + SECONDS_IN_ALL
        self.figures = []
        self.log = []

    def run(self, program, name, conf, limit=0):
        """Runs a program in a process of its own; None if it failed, which the log then says."""
        full = f"{program}-{name}"
        if time.monotonic() > self.end:
            self.log.append(f"{full}: left out, the time is over")
            return None
        file = os.path.join(self.folder, f"{full}.pickle.gz")
        environment = dict(os.environ, OMP_NUM_THREADS="2", PYTHONUNBUFFERED="1")
        for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            environment.pop(variable, None)
        if conf:
            # Older releases know only the longer name.
            environment["PYTORCH_ALLOC_CONF"] = environment["PYTORCH_CUDA_ALLOC_CONF"] = conf
        command = [sys.executable, os.path.abspath(__file__), "--program", program, "--name", full]
        command += ["--conf", conf, "--limit", str(limit), "--file", file, self.folder]
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SECONDS_PER_RUN, check=False
            )
        except Exception as error:
            self.log.append(f"{full}: {error}")
            return None
        lines = [line[8:] for line in done.stdout.splitlines() if line.startswith("FIGURES ")]
        seconds = time.monotonic() - start
        self.log.append(f"{full}: exit {done.returncode} after {seconds:.1f} s\n{done.stderr[-1500:]}")
        if not lines:
            return None
        figures = json.loads(lines[-1])
        self.figures.append(figures)
        print(f"{full}: {seconds:.1f} s, {(figures['reserved_bytes.all.peak'] or 0) / MIB:.0f} MiB", flush=True)
        return figures

    def run_all(self):
        with concurrent.futures.ThreadPoolExecutor(RUNS_AT_A_TIME) as workers:
            bases = {program: workers.submit(self.run, program, "default", "") for program in PROGRAMS}
            tasks = []
            for name, conf in UNLIMITED.items():
                tasks += [(program, name, conf, 0) for program in PROGRAMS]
            limited = []
            for program, base in bases.items():
                figures = base.result()
                if figures is None:
                    continue
                reserved = figures["reserved_bytes.all.peak"]
                held = figures["active_bytes.all.peak"]
                loose = held + int(0.75 * (reserved - held))
                tight = held + max(int(0.3 * (reserved - held)), 8 * MIB)
                limited += [(program, f"loose-{name}", conf, loose) for name, conf in LIMITED.items()]
                limited += [(program, f"tight-{name}", LIMITED[name], tight) for name in TIGHT]
            # Both kinds in turn, so that a late end takes some of each.
            mixed = []
            for number in range(max(len(tasks), len(limited))):
                mixed += tasks[number : number + 1] + limited[number : number + 1]
            for future in [workers.submit(self.run, *task) for task in mixed]:
                try:
                    future.result()
                except Exception:
                    self.log.append(traceback.format_exc())

    def write_tar(self, path):
        with tarfile.open(path, "w") as tar:
            texts = {
                "figures.jsonl": "".join(json.dumps(each) + "\n" for each in self.figures),
                "log.txt": "\n".join(self.log) + "\n",
            }
            for name, text in texts.items():
                member = tarfile.TarInfo(name)
                data = text.encode()
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            for name in sorted(os.listdir(self.folder)):
                tar.add(os.path.join(self.folder, name), arcname=name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the folder for settings.tar")
    parser.add_argument("--program", choices=PROGRAMS, help="run only this program, in this process")
    parser.add_argument("--name", default="run")
    parser.add_argument("--conf", default="")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--file", default="run.pickle.gz")
    arguments = parser.parse_args()
    if arguments.program:
        run_program(arguments)
        return
    os.makedirs(arguments.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        try:
            recorder.run_all()
        except Exception:
            recorder.log.append(traceback.format_exc())
        path = os.path.join(arguments.out, "settings.tar")
        recorder.write_tar(path)
        print(f"{path}: {len(recorder.figures)} runs, {os.path.getsize(path) / MIB:.1f} MiB")


if __name__ == "__main__":
    main()
