"""Records small PyTorch trainings together with what each block was for, for traces/categories/.

    OUT=folder python3 traces/record/categories.py [NAME ...]

needs a GPU, PyTorch 2.11 and about five minutes. A NAME is one of the RUNS below, or the start of some of them; none
runs all. Each run writes NAME.pickle.gz, the recording, and NAME.json, the truth: a letter for each allocation of the
recording in its order ("blocks"), and one for each block from before it by its address ("initial").

p parameter or buffer, g gradient, o optimizer state, a saved for backward, i input, u output of a module that is not
saved, t anything else. The letters come from the tensors of the program itself, not from the recording. Runs with the
profiler also write NAME.profile.pickle.gz, what PyTorch's `_profile_to_snapshot` makes of it.
"""

import concurrent.futures
import gzip
import json
import os
import pickle
import subprocess
import sys
import time
import traceback

RUNS_AT_A_TIME = 6
SECONDS_PER_RUN = 170
# Larger recordings lose the call stacks of their frees.
MOST_BYTES = 300_000
# A block that several tensors claim gets the first of these letters.
RANKS = "pogaiut"

# Each run: the program, then its options. Batch series are named by what varies.
RUNS = {
    "mlp-python": ("mlp", {}),
    "mlp-all": ("mlp", {"stacks": "all"}),
    "mlp-zero": ("mlp", {"set_to_none": False, "foreach": False}),
    "mlp-fused-all": ("mlp", {"fused": True, "stacks": "all", "on_device": True}),
    "mlp-nostacks": ("mlp", {"stacks": None}),
    "mlp-late": ("mlp", {"late": True}),
    "cnn-python": ("cnn", {}),
    "cnn-all": ("cnn", {"stacks": "all"}),
    "cnn-zero-all": ("cnn", {"set_to_none": False, "stacks": "all"}),
    "cnn-single": ("cnn", {"foreach": False, "on_device": True}),
    "cnn-nostacks": ("cnn", {"stacks": None}),
    "cnn-late-all": ("cnn", {"late": True, "stacks": "all"}),
    "gpt-python": ("gpt", {"checkpoint": True}),
    "gpt-all": ("gpt", {"checkpoint": True, "stacks": "all"}),
    "gpt-plain": ("gpt", {"on_device": True}),
    "gpt-fused-zero": ("gpt", {"checkpoint": True, "fused": True, "set_to_none": False}),
    "gpt-plain-all": ("gpt", {"stacks": "all", "foreach": False}),
    "gpt-nostacks": ("gpt", {"stacks": None, "checkpoint": True}),
    "gpt-late": ("gpt", {"late": True, "checkpoint": True}),
    "lstm-python": ("lstm", {}),
    "lstm-all": ("lstm", {"stacks": "all"}),
    "lstm-zero": ("lstm", {"set_to_none": False}),
    "vit-python": ("vit", {}),
    "vit-all": ("vit", {"stacks": "all"}),
    "vit-zero-all": ("vit", {"set_to_none": False, "stacks": "all", "fused": True}),
    "gan-python": ("gan", {}),
    "gan-all": ("gan", {"stacks": "all"}),
    "gan-zero": ("gan", {"set_to_none": False, "foreach": False}),
    "accumulate-python": ("accumulate", {"set_to_none": False}),
    "accumulate-all": ("accumulate", {"stacks": "all"}),
    "accumulate-zero-all": ("accumulate", {"set_to_none": False, "stacks": "all"}),
    "infer-python": ("infer", {}),
    "infer-all": ("infer", {"stacks": "all"}),
    "mlp-profile": ("mlp", {"profile": True}),
    "cnn-profile": ("cnn", {"profile": True}),
    "gpt-profile": ("gpt", {"profile": True, "checkpoint": True}),
    "lstm-profile": ("lstm", {"profile": True}),
    "gan-profile": ("gan", {"profile": True}),
    **{f"series-gpt-batch{n}": ("gpt", {"batch": n, "steps": 3, "truth": False}) for n in (4, 8, 12, 16)},
    **{f"series-cnn-batch{n}": ("cnn", {"batch": n, "steps": 3, "truth": False}) for n in (4, 8, 12, 16)},
    **{f"series-lstm-batch{n}": ("lstm", {"batch": n, "steps": 3, "truth": False}) for n in (4, 8, 12, 16)},
    **{
        f"series-attention-length{n}": ("attention", {"length": n, "steps": 3, "truth": False})
        for n in (128, 256, 384, 512)
    },
}


class Truth:
    """Notes which tensors lie where, and after how many allocations that was seen."""

    def __init__(self, torch, wanted):
        self.torch = torch
        self.wanted = wanted
        self.notes = []
        self.phases = []
        self.base = None

    def count(self):
        return self.torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["allocated"]

    def start(self):
        self.base = self.count()

    def note(self, tensor, letter):
        if not self.wanted or self.base is None or tensor is None or not tensor.is_cuda:
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() > 0:
            self.notes.append((self.count() - self.base, storage.data_ptr(), letter))

    def note_all(self, value, letter):
        if self.torch.is_tensor(value):
            self.note(value, letter)
        elif isinstance(value, dict):
            for each in value.values():
                self.note_all(each, letter)
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.note_all(each, letter)

    def phase(self, name):
        if self.wanted and self.base is not None:
            self.phases.append((self.count() - self.base, name))

    def watch(self, modules):
        """Notes gradients when they are accumulated, and what modules return."""
        if not self.wanted:
            return
        for module in modules:
            for parameter in module.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: self.note(p.grad, "g"))
            for child in module.modules():
                child.register_forward_hook(lambda _module, _inputs, output: self.note_all(output, "u"))

    def note_state(self, modules, optimizers):
        for module in modules:
            for parameter in module.parameters():
                self.note(parameter.data, "p")
                self.note(parameter.grad, "g")
            for buffer in module.buffers():
                self.note(buffer, "p")
        for optimizer in optimizers:
            for state in optimizer.state.values():
                self.note_all(state, "o")

    def saving(self):
        """Notes what autograd saves for backward, also within recomputed parts."""
        if not self.wanted:
            import contextlib

            return contextlib.nullcontext()

        def pack(tensor):
            self.note(tensor, "a")
            return tensor

        return self.torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def watch_recomputing(self):
        if not self.wanted:
            return
        try:
            from torch.utils import checkpoint

            hook = checkpoint._recomputation_hook
            original = hook.__init__

            def init(this, *arguments, **named):
                original(this, *arguments, **named)
                inner = this.pack_hook

                def pack(tensor):
                    self.note(tensor, "a")
                    return inner(tensor)

                this.pack_hook = pack

            hook.__init__ = init
        except Exception as error:
            print(f"recomputed tensors are not noted: {error}", file=sys.stderr)

    def letters(self, trace):
        """A letter for each allocation of the trace, and for each block from before it."""
        notes = sorted(self.notes, key=lambda note: note[0])
        letters, latest, initial, at = [], {}, {}, 0

        def better(old, new):
            return new if RANKS.index(new) < RANKS.index(old) else old

        def apply(count):
            nonlocal at
            while at < len(notes) and notes[at][0] <= count:
                _, address, letter = notes[at]
                index = latest.get(address)
                if index is None:
                    initial[address] = better(initial.get(address, "t"), letter)
                else:
                    letters[index] = better(letters[index], letter)
                at += 1

        for event in trace:
            if event["action"] == "alloc":
                apply(len(letters))
                latest[event["addr"]] = len(letters)
                letters.append("t")
        apply(float("inf"))
        return "".join(letters), initial


def make_mlp(torch, options):
    from torch import nn

    layers = [nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Dropout(0.1), nn.Linear(4096, 1000)]
    model = nn.Sequential(*layers)
    batch = options.get("batch", 4096)

    def data():
        return torch.randn(batch, 1024), torch.randint(0, 1000, (batch,))

    def loss(inputs, targets):
        return nn.functional.cross_entropy(model(inputs), targets)

    return [model], lambda parameters, named: [torch.optim.Adam(parameters[0], lr=1e-3, **named)], data, loss


def make_cnn(torch, options):
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, out):
            super().__init__()
            self.conv1 = nn.Conv2d(width, out, 3, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(out)
            self.short = nn.Conv2d(width, out, 1, bias=False) if width != out else nn.Identity()

        def forward(self, x):
            y = torch.relu(self.norm1(self.conv1(x)))
            return torch.relu(self.norm2(self.conv2(y)) + self.short(x))

    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        Block(64, 64),
        nn.MaxPool2d(2),
        Block(64, 128),
        nn.MaxPool2d(2),
        Block(128, 512),
        Block(512, 512),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 100),
    )
    batch = options.get("batch", 32)

    def data():
        return torch.randn(batch, 3, 128, 128), torch.randint(0, 100, (batch,))

    def loss(inputs, targets):
        return nn.functional.cross_entropy(model(inputs), targets)

    def optimizers(parameters, named):
        return [torch.optim.SGD(parameters[0], lr=0.01, momentum=0.9, weight_decay=1e-4, **named)]

    return [model], optimizers, data, loss


def make_transformer(torch, options, vocabulary, width, layers, heads, batch, length, naive):
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            rows, steps, _ = x.shape
            q, k, v = self.qkv(x).view(rows, steps, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            if naive:
                weights = (q @ k.transpose(-2, -1) / (width // heads) ** 0.5).softmax(-1)
                mixed = weights @ v
            else:
                mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(rows, steps, width))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention()
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.places = nn.Embedding(length, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if options.get("checkpoint") else layer(x)
            return self.head(self.norm(x))

    model = Model()

    def data():
        tokens = torch.randint(0, vocabulary, (batch, length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(inputs, targets):
        return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    return [model], lambda parameters, named: [torch.optim.AdamW(parameters[0], lr=3e-4, **named)], data, loss


def make_gpt(torch, options):
    return make_transformer(torch, options, 8000, 512, 4, 8, options.get("batch", 16), 256, False)


def make_attention(torch, options):
    return make_transformer(torch, options, 2000, 256, 2, 8, 8, options.get("length", 256), True)


def make_lstm(torch, options):
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10000, 512)
            self.lstm = nn.LSTM(512, 1024, num_layers=2, batch_first=True, dropout=0.1)
            self.head = nn.Linear(1024, 10000)

        def forward(self, tokens):
            return self.head(self.lstm(self.embedding(tokens))[0])

    model = Model()
    batch = options.get("batch", 32)

    def data():
        tokens = torch.randint(0, 10000, (batch, 65))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(inputs, targets):
        return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    return [model], lambda parameters, named: [torch.optim.Adam(parameters[0], **named)], data, loss


def make_vit(torch, options):
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 384, 8, stride=8)
            self.places = nn.Parameter(torch.zeros(1, 145, 384))
            self.cls = nn.Parameter(torch.zeros(1, 1, 384))
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.1, batch_first=True, norm_first=True) for _ in range(3)
            )
            self.head = nn.Linear(384, 1000)

        def forward(self, images):
            x = self.patches(images).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
            for layer in self.layers:
                x = layer(x)
            return self.head(x[:, 0])

    model = Model()
    batch = options.get("batch", 48)

    def data():
        return torch.randn(batch, 3, 96, 96), torch.randint(0, 1000, (batch,))

    def loss(inputs, targets):
        return nn.functional.cross_entropy(model(inputs), targets)

    return [model], lambda parameters, named: [torch.optim.AdamW(parameters[0], **named)], data, loss


def make_gan(torch, _options):
    from torch import nn

    generator = nn.Sequential(
        nn.ConvTranspose2d(128, 512, 4),
        nn.BatchNorm2d(512),
        nn.ReLU(),
        nn.ConvTranspose2d(512, 256, 4, 2, 1),
        nn.BatchNorm2d(256),
        nn.ReLU(),
        nn.ConvTranspose2d(256, 128, 4, 2, 1),
        nn.BatchNorm2d(128),
        nn.ReLU(),
        nn.ConvTranspose2d(128, 3, 4, 2, 1),
        nn.Tanh(),
    )
    judge = nn.Sequential(
        nn.Conv2d(3, 128, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(128, 256, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(256, 512, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(512, 1, 4),
        nn.Flatten(),
    )

    def data():
        return torch.randn(128, 3, 32, 32), torch.randn(128, 128, 1, 1)

    def optimizers(parameters, named):
        return [torch.optim.Adam(each, lr=2e-4, betas=(0.5, 0.999), **named) for each in parameters]

    return [generator, judge], optimizers, data, (generator, judge)


def train_plain(torch, truth, options, parts, step):
    modules, optimizers, data, loss = parts
    named = {"set_to_none": options.get("set_to_none", True)}
    amp = options.get("amp")
    scaler = options.get("scaler")
    micro = options.get("micro", 1)
    for optimizer in optimizers:
        optimizer.zero_grad(**named)
    for _ in range(micro):
        inputs, targets = (each.to("cuda", non_blocking=True) for each in data())
        truth.note_all([inputs, targets], "i")
        truth.phase("forward")
        with truth.saving(), torch.autocast("cuda", dtype=torch.float16, enabled=bool(amp)):
            value = loss(inputs, targets) / micro
        truth.phase("backward")
        (scaler.scale(value) if scaler else value).backward()
    truth.note_state(modules, optimizers)
    truth.phase("optimizer")
    for optimizer in optimizers:
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    truth.note_state(modules, optimizers)
    truth.phase("end")


def train_gan(torch, truth, options, parts, step):
    (generator, judge), (first, second), data, _ = parts
    named = {"set_to_none": options.get("set_to_none", True)}
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    real, noise = (each.to("cuda") for each in data())
    truth.note_all([real, noise], "i")

    truth.phase("forward")
    with truth.saving():
        fake = generator(noise)
        second.zero_grad(**named)
        of_real = judge(real)
        of_fake = judge(fake.detach())
        value = bce(of_real, torch.ones_like(of_real)) + bce(of_fake, torch.zeros_like(of_fake))
    truth.phase("backward")
    value.backward()
    truth.note_state([generator, judge], [first, second])
    truth.phase("optimizer")
    second.step()
    truth.note_state([generator, judge], [first, second])

    truth.phase("forward")
    first.zero_grad(**named)
    with truth.saving():
        of_fake = judge(fake)
        value = bce(of_fake, torch.ones_like(of_fake))
    truth.phase("backward")
    value.backward()
    truth.note_state([generator, judge], [first, second])
    truth.phase("optimizer")
    first.step()
    truth.note_state([generator, judge], [first, second])
    truth.phase("end")


def infer(torch, truth, options, parts, step):
    modules, _, data, _ = parts
    with torch.inference_mode():
        inputs, _ = (each.to("cuda") for each in data())
        truth.note_all(inputs, "i")
        truth.phase("forward")
        modules[0](inputs).argmax(-1).cpu()
    truth.note_state(modules, [])
    truth.phase("end")


PROGRAMS = {
    "mlp": (make_mlp, train_plain, {}),
    "cnn": (make_cnn, train_plain, {}),
    "gpt": (make_gpt, train_plain, {}),
    "attention": (make_attention, train_plain, {}),
    "lstm": (make_lstm, train_plain, {"amp": True}),
    "vit": (make_vit, train_plain, {"amp": True}),
    "gan": (make_gan, train_gan, {}),
    "accumulate": (make_gpt, train_plain, {"micro": 3, "batch": 8}),
    "infer": (make_gpt, infer, {}),
}


def prepare(torch, truth, program, options):
    """Makes the model and the optimizers, and returns a function that runs one step."""
    make, train, _ = PROGRAMS[program]
    torch.manual_seed(1)
    if options.get("on_device"):
        with torch.device("cuda"):
            modules, optimizers, data, loss = make(torch, options)
    else:
        modules, optimizers, data, loss = make(torch, options)
        modules = [module.cuda() for module in modules]
    if program == "infer":
        modules = [module.eval() for module in modules]
    truth.watch(modules)
    if options.get("checkpoint"):
        truth.watch_recomputing()
    truth.note_state(modules, [])
    named = {key: options[key] for key in ("foreach", "fused") if key in options}
    made = [] if program == "infer" else optimizers([list(module.parameters()) for module in modules], named)
    if options.get("amp"):
        options["scaler"] = torch.amp.GradScaler("cuda", init_scale=1024.0)
    parts = (modules, made, data, loss)

    def step(number):
        train(torch, truth, options, parts, number)
        truth.note_state(modules, made)

    return step


def lean(snapshot):
    """Drops the empty fields of each event, which would only make the file larger, and the folder of this file."""
    blocks = [block for segment in snapshot.get("segments", []) for block in segment["blocks"]]
    for entry in [entry for trace in snapshot.get("device_traces", []) for entry in trace] + blocks:
        for key in ("frames", "compile_context", "user_metadata"):
            if key in entry and not entry[key]:
                del entry[key]
        for frame in entry.get("frames", []):
            if frame["filename"] == os.path.abspath(__file__):
                frame["filename"] = os.path.basename(__file__)
    return snapshot


def write_pickle(path, value):
    data = gzip.compress(pickle.dumps(value, protocol=4), 9, mtime=0)
    with open(path, "wb") as file:
        file.write(data)
    return len(data)


def profiled(torch, step, steps, path):
    """Runs the steps under the profiler, and writes what PyTorch makes of its categories."""
    from torch.cuda import _memory_viz
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, profile_memory=True, record_shapes=True, with_stack=True) as profiler:
        for number in range(steps):
            step(number)
        torch.cuda.synchronize()
    try:
        return write_pickle(path, _memory_viz._profile_to_snapshot(profiler))
    except Exception:
        print("no snapshot of the profiler:\n" + traceback.format_exc()[-1500:], file=sys.stderr)
        return 0


def run_one(name, folder):
    """Runs one program in this process, writes its files, and prints its figures as one line."""
    import torch

    program, options = RUNS[name]
    options = {**PROGRAMS[program][2], **options}
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    memory = torch.cuda.memory
    truth = Truth(torch, options.get("truth", True))
    stacks = options.get("stacks", "python")

    def record():
        memory._record_memory_history(
            enabled="all", context="all" if stacks else None, stacks=stacks or "python", max_entries=200_000
        )
        torch.cuda.reset_peak_memory_stats()
        truth.start()

    steps = options.get("steps", 4)
    if not options.get("late"):
        record()
    step = prepare(torch, truth, program, options)
    if options.get("late"):
        for number in range(2):
            step(number)
        torch.cuda.synchronize()
        record()
    figures = {"name": name, "program": program, "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
    figures["options"] = {key: value for key, value in options.items() if key != "scaler"}
    if options.get("profile"):
        # Few steps: the profiler's events are many.
        step(0)
        figures["profile_bytes"] = profiled(torch, step, 2, os.path.join(folder, f"{name}.profile.pickle.gz"))
    else:
        for number in range(steps):
            step(number)
    torch.cuda.synchronize()
    figures["max_allocated"] = torch.cuda.max_memory_allocated()
    figures["max_reserved"] = torch.cuda.max_memory_reserved()
    allocations = truth.count() - truth.base
    snapshot = memory._snapshot()
    memory._record_memory_history(enabled=None)
    trace = snapshot["device_traces"][0]
    letters, initial = truth.letters(trace)
    figures["allocations"] = [allocations, len(letters)]
    figures["letters"] = {letter: letters.count(letter) for letter in RANKS}
    path = os.path.join(folder, f"{name}.pickle.gz")
    figures["bytes"] = write_pickle(path, lean(snapshot))
    if figures["bytes"] > MOST_BYTES:
        for entry in trace:
            if entry["action"].startswith("free"):
                entry.pop("frames", None)
        figures["bytes"] = write_pickle(path, snapshot)
    content = {**figures, "phases": truth.phases, "blocks": letters, "initial": {hex(at): each for at, each in initial.items()}}
    with open(os.path.join(folder, f"{name}.json"), "w") as file:
        json.dump(content, file)
    print("FIGURES " + json.dumps(figures), flush=True)


def run_apart(name, folder):
    """Runs one program in a process of its own, and says in a line how it went."""
    environment = dict(os.environ, OMP_NUM_THREADS="2", PYTHONUNBUFFERED="1", OUT=folder)
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environment.pop(variable, None)
    start = time.monotonic()
    command = [sys.executable, os.path.abspath(__file__), "--here", name]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS_PER_RUN, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{name}: ended after {SECONDS_PER_RUN} s"
    lines = [line[8:] for line in done.stdout.splitlines() if line.startswith("FIGURES ")]
    seconds = time.monotonic() - start
    said = lines[-1] if lines else f"FAILED {done.returncode}"
    errors = done.stderr.strip()
    return f"{name}: {seconds:.1f} s {said}" + (f"\n{errors[-2500:]}" if errors else "")


def main():
    folder = os.environ.get("OUT", ".")
    os.makedirs(folder, exist_ok=True)
    arguments = sys.argv[1:]
    if arguments[:1] == ["--here"]:
        run_one(arguments[1], folder)
        return
    names = [name for name in RUNS if not arguments or any(name.startswith(each) for each in arguments)]
    with concurrent.futures.ThreadPoolExecutor(RUNS_AT_A_TIME) as workers:
        for said in workers.map(lambda name: run_apart(name, folder), names):
            print(said, flush=True)


if __name__ == "__main__":
    main()
