"""Records ten kinds of small PyTorch programs, each twice, and twenty of them with a planted growth.

    python3 traces/record/pairs.py OUT

needs a GPU, PyTorch 2.11 and about three minutes. It writes OUT/pairs-a.tar with KIND-seedN-a.pickle.gz and
KIND-seedN-grown-PLANT.pickle.gz, OUT/pairs-b.tar with KIND-seedN-b.pickle.gz (the same program as -a in another process),
and in each a `figures-*.jsonl` with what PyTorch itself counted. `cuda-mempool check` must pass each pair of -a and -b,
and must fail each planted growth against its -a. Some of them are in traces/pairs/, where this file is /app/pairs.py.
"""

import argparse
import gzip
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback

import torch
from torch import nn

MIB = 1 << 20
SEEDS = 10
RUNS_AT_A_TIME = 6
SECONDS_PER_RUN = 60
SECONDS_IN_ALL = 270
GPU = "cuda"

# A growth that check must find: kind, seed, what is planted.
PLANTED = [
    ("mlp", 0, "buffer"),
    ("mlp", 1, "batch"),
    ("cnn", 0, "leak"),
    ("cnn", 1, "batch"),
    ("transformer", 0, "hold"),
    ("transformer", 1, "batch"),
    ("lstm", 0, "leak"),
    ("lstm", 1, "batch"),
    ("streams", 0, "buffer"),
    ("streams", 1, "leak"),
    ("graphs", 0, "buffer"),
    ("graphs", 1, "leak"),
    ("shapes", 0, "leak"),
    ("shapes", 1, "batch"),
    ("server", 0, "hold"),
    ("server", 1, "buffer"),
    ("amp", 0, "fp32"),
    ("amp", 1, "batch"),
    ("optimizer", 0, "state"),
    ("optimizer", 1, "buffer"),
]


class Run:
    """One run of a program: its seed, what is planted, and the peak of the run without it."""

    def __init__(self, kind, seed, plant="", peak=0):
        self.kind, self.seed, self.plant, self.peak = kind, seed, plant, peak
        self.choose = random.Random(f"{kind} {seed}")
        self.kept = []

    def batch(self, low, high):
        """The size of a batch; 5 % more where that is planted."""
        size = self.choose.randint(low, high)
        return -(-size * 105 // 100) if self.plant == "batch" else size

    def begin(self):
        if self.plant == "buffer":
            self.keep_buffer()

    def step(self):
        """Begins a step."""
        if self.plant == "leak":
            self.leak_one()

    def keep_buffer(self):
        self.kept.append(torch.empty(self.peak * 3 // 100, dtype=torch.uint8, device=GPU))

    def leak_one(self):
        self.kept.append(torch.empty(self.peak * 25 // 1000, dtype=torch.uint8, device=GPU))


def mlp(run):
    width = 1024 + 128 * (run.seed % 4)
    model = nn.Sequential(
        nn.Linear(512, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 64)
    ).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(12):
        run.step()
        rows = torch.randn(run.batch(6000, 12000), 512, device=GPU)
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def cnn(run):
    width = 24 + 8 * (run.seed % 3)
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1, stride=2),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    ).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(8):
        run.step()
        images = torch.randn(run.batch(40, 80), 3, 96, 96, device=GPU)
        model(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def transformer(run):
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(192, 4, 384, dropout=0.1, batch_first=True) for _ in range(2)
    ).to(GPU)
    embedding = nn.Embedding(2000, 192).to(GPU)
    head = nn.Linear(192, 2000).to(GPU)
    parameters = [*layers.parameters(), *embedding.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    history = []
    for _ in range(5):
        run.step()
        tokens = torch.randint(0, 2000, (run.batch(20, 40), run.choose.randint(64, 256)), device=GPU)
        hidden = embedding(tokens)
        for layer in layers:
            hidden = layer(hidden)
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), tokens.flatten())
        loss.backward(retain_graph=run.plant == "hold")
        if run.plant == "hold":
            # The loss keeps its whole graph, as a sum of losses for a log does.
            history.append(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def lstm(run):
    model = nn.LSTM(128, 256, num_layers=2, batch_first=True).to(GPU)
    head = nn.Linear(256, 500).to(GPU)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], foreach=run.seed % 2 == 0)
    for _ in range(8):
        run.step()
        rows = torch.randn(run.batch(40, 90), run.choose.randint(40, 120), 128, device=GPU)
        states, _ = model(rows)
        head(states).logsumexp(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def streams(run):
    """Blocks that other streams use: when they can be used again depends on how fast the GPU is."""
    made = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    weight = torch.randn(1024, 1024, device=GPU)
    for _ in range(10):
        run.step()
        for _ in range(20):
            stream, other = run.choose.sample(made, 2)
            with torch.cuda.stream(stream):
                rows = torch.randn(run.choose.randint(500, 6000), 1024, device=GPU)
            if run.choose.random() < 0.5:
                other.wait_stream(stream)
                with torch.cuda.stream(other):
                    product = rows @ weight
                rows.record_stream(other)
                kept.append(product)
                del product
            kept.append(rows)
            del rows
            while len(kept) > 12 or (kept and run.choose.random() < 0.4):
                kept.pop(run.choose.randrange(len(kept)))
        if run.seed % 2:
            torch.cuda.synchronize()


def graphs(run):
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 512))
    model = model.to(GPU).eval()
    captured = {}
    pool = torch.cuda.graph_pool_handle()
    side = torch.cuda.Stream()
    with torch.no_grad():
        for size in sorted(run.choose.sample([256, 512, 1024, 2048, 3072, 4096], 4), reverse=True):
            rows = torch.zeros(size, 512, device=GPU)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(rows)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool if run.seed % 2 == 0 else None):
                answer = model(rows)
            captured[size] = (graph, rows, answer)
        results = []
        for _ in range(12):
            run.step()
            graph, rows, answer = captured[run.choose.choice(list(captured))]
            rows.copy_(torch.randn(rows.shape, device=GPU))
            graph.replay()
            results.append(answer.clone())
            if len(results) > 3:
                results.pop(0)


def shapes(run):
    """Shapes that depend on data: what is above a threshold goes on."""
    router = nn.Linear(256, 4).to(GPU)
    experts = nn.ModuleList(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)) for _ in range(4)).to(
        GPU
    )
    for _ in range(8):
        run.step()
        rows = torch.randn(run.batch(8000, 16000), 256, device=GPU)
        chosen = router(rows).argmax(1)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(experts):
            places = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, places, expert(rows[places]))
        kept = out[out[:, 0] > 0.01 * run.seed]
        (kept.square().sum() + out.mean()).backward()
        for parameter in [*experts.parameters(), *router.parameters()]:
            parameter.grad = None


def server(run):
    """Answers requests of random lengths in random order, and keeps the newest answers."""
    layers = nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(2)).to(GPU).eval()
    embedding = nn.Embedding(5000, 256).to(GPU)
    requests = [run.choose.randint(16, 512) for _ in range(30)]
    run.choose.shuffle(requests)
    cache = []
    with torch.no_grad():
        while requests:
            run.step()
            lengths = [requests.pop() for _ in range(min(len(requests), run.choose.randint(1, 6)))]
            tokens = torch.zeros(8 * len(lengths), max(lengths), dtype=torch.long, device=GPU)
            hidden = embedding(tokens)
            for layer in layers:
                hidden = layer(hidden)
            cache.append(hidden)
            del hidden
            if len(cache) > 2 and run.plant != "hold":
                cache.pop(0)


def amp(run):
    width = 768
    model = nn.Sequential(
        nn.Linear(256, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 32)
    ).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), fused=run.seed % 2 == 0)
    scaler = torch.amp.GradScaler(GPU)
    kind = torch.float32 if run.plant == "fp32" else torch.float16
    for _ in range(8):
        run.step()
        rows = torch.randn(run.batch(8000, 16000), 256, device=GPU)
        with torch.autocast(GPU, dtype=kind, enabled=kind == torch.float16):
            loss = model(rows).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def optimizer(run):
    model = nn.Sequential(*[nn.Linear(1200, 1200) for _ in range(8)]).to(GPU)
    made = [
        lambda each: torch.optim.SGD(each, lr=0.01),
        lambda each: torch.optim.Adam(each, foreach=False),
        lambda each: torch.optim.AdamW(each, foreach=True),
        lambda each: torch.optim.RMSprop(each, momentum=0.5),
        lambda each: torch.optim.Adagrad(each),
        lambda each: torch.optim.SGD(each, lr=0.01, momentum=0.9, nesterov=True),
        lambda each: torch.optim.Adam(each, amsgrad=True, foreach=False),
        lambda each: torch.optim.Adamax(each),
        lambda each: torch.optim.AdamW(each, fused=True),
        lambda each: torch.optim.NAdam(each),
    ]
    chosen = made[1] if run.plant == "state" else made[run.seed % len(made)]
    optimizer = chosen(model.parameters())
    for _ in range(5):
        run.step()
        model(torch.randn(run.batch(100, 400), 1200, device=GPU)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=run.seed % 3 != 0)


def tuned(run):
    """Not one of the hundred pairs: cuDNN measures its algorithms, so two runs may choose other ones."""
    torch.backends.cudnn.benchmark = True
    cnn(run)


KINDS = {
    each.__name__: each for each in (mlp, cnn, transformer, lstm, streams, graphs, shapes, server, amp, optimizer)
}


def record(run, path):
    """Runs a program in this process, writes its recording, and returns what PyTorch counted."""
    torch.set_num_threads(1)
    memory = torch.cuda.memory
    memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=100_000)
    torch.manual_seed(run.seed)
    run.begin()
    {**KINDS, "tuned": tuned}[run.kind](run)
    torch.cuda.synchronize()
    stats = memory.memory_stats()
    snapshot = memory._snapshot()
    same = {}

    def share(frames):
        # A stack that many blocks have is written once.
        return same.setdefault(tuple((each["filename"], each["line"], each["name"]) for each in frames), frames)

    entries = [entry for trace in snapshot["device_traces"] for entry in trace]
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    for entry in [*entries, *blocks, *snapshot["segments"]]:
        if entry.get("frames"):
            entry["frames"] = share(entry["frames"])
        for key in ("frames", "compile_context", "user_metadata"):
            if key in entry and not entry[key]:
                del entry[key]
    data = gzip.compress(pickle.dumps(snapshot, protocol=4), 9, mtime=0)
    with open(path, "wb") as file:
        file.write(data)
    figures = {"events": len(entries), "file_bytes": len(data)}
    names = {
        "in_use": "allocated_bytes.all.peak",
        "active": "active_bytes.all.peak",
        "reserved": "reserved_bytes.all.peak",
        "retries": "num_alloc_retries",
    }
    return {**figures, **{name: stats.get(key) for name, key in names.items()}}


class Recorder:
    """Runs programs in processes forked from this one, which has loaded PyTorch and not touched the GPU."""

    def __init__(self, out, label):
        self.out, self.label = out, label
        self.end = time.monotonic() + SECONDS_IN_ALL
        self.peaks = {}
        self.under_way = {}
        self.figures = open(os.path.join(out, f"figures-{label}.jsonl"), "w")

    def start(self, run, name):
        process = os.fork()
        if process == 0:
            try:
                figures = record(run, os.path.join(self.out, f"{name}.pickle.gz"))
                with open(os.path.join(self.out, f"{name}.json"), "w") as file:
                    json.dump(figures, file)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        self.under_way[process] = (run, name, time.monotonic())

    def finish(self, process, status):
        run, name, start = self.under_way.pop(process)
        if status != 0:
            print(f"{name}: FAILED, status {status}", flush=True)
            return
        path = os.path.join(self.out, f"{name}.json")
        with open(path) as file:
            figures = json.load(file)
        os.remove(path)
        if not run.plant:
            self.peaks[run.kind, run.seed] = figures["in_use"]
        seconds = time.monotonic() - start
        self.figures.write(json.dumps({"name": name, "plant": run.plant, **figures}) + "\n")
        print(
            f"{name}: {seconds:.1f} s, {figures['in_use'] / MIB:.1f} MiB in use, {figures['reserved'] / MIB:.0f} MiB"
            f" reserved, {figures['events']} events, {figures['file_bytes'] // 1000} kB",
            flush=True,
        )

    def wait(self, at_most):
        """Waits until no more than so many runs are under way; a run that takes too long is ended."""
        while len(self.under_way) > at_most:
            for process, (_, _, start) in list(self.under_way.items()):
                done, status = os.waitpid(process, os.WNOHANG)
                if done:
                    self.finish(process, status)
                elif time.monotonic() - start > SECONDS_PER_RUN:
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    def run_all(self, runs):
        for run, name in runs:
            self.wait(RUNS_AT_A_TIME - 1)
            if time.monotonic() > self.end:
                print(f"{name}: left out, the time is over", flush=True)
            else:
                self.start(run, name)
        self.wait(0)


def record_all(folder, label):
    recorder = Recorder(folder, label)
    pairs = [(kind, seed) for seed in range(SEEDS) for kind in KINDS] + [("tuned", seed) for seed in range(5)]
    recorder.run_all([(Run(kind, seed), f"{kind}-seed{seed}-{label}") for kind, seed in pairs])
    if label == "a":
        recorder.run_all(
            [
                (Run(kind, seed, plant, recorder.peaks[kind, seed]), f"{kind}-seed{seed}-grown-{plant}")
                for kind, seed, plant in PLANTED
                if (kind, seed) in recorder.peaks
            ]
        )
    recorder.figures.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the folder for the recordings")
    parser.add_argument("--label", choices=["a", "b"], help="only the runs of this label, in this process")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    other, label = None, arguments.label or "a"
    if not arguments.label:
        command = [sys.executable, os.path.abspath(__file__), arguments.out, "--label", "b"]
        other = subprocess.Popen(command)
    with tempfile.TemporaryDirectory() as folder:
        record_all(folder, label)
        with tarfile.open(os.path.join(arguments.out, f"pairs-{label}.tar"), "w") as tar:
            for name in sorted(os.listdir(folder)):
                tar.add(os.path.join(folder, name), arcname=name)
    if other and other.wait():
        sys.exit("the runs of label b failed")


if __name__ == "__main__":
    main()
