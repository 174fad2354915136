"""What other code makes of `parity_problem`: `python record_more_peers.py HAT_CHECKOUT AVALANCHE_CHECKOUT OUT.json`.

HAT by its authors' code, progressive networks and EWC by Avalanche's. Nothing of these is kept but weights. The
authors' code is of 2018: what torch has dropped since (`Variable`, `clip_grad_norm`) is put back, and `cuda` stays on
the CPU. Of Avalanche only the two files are loaded; their imports are replaced by what these need of them. Departures
that the methods page names are taken out: Avalanche's adapter of a column's first layer, and the bias of an adapter's
last layer, are zero and stay so; its Fisher information is that of single rows in batches of one.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from parity_problem import BATCH, FEATURES, HIDDEN, RATE, TASKS, Network, columns, embeddings, problem, weights_of

SETTINGS = {
    "hat": {"lamb": 0.1, "smax": 50.0, "lr": RATE, "sbatch": BATCH, "clipgrad": 10000, "nepochs": 1},
    "pnn": {"num_layers": 2, "lr": RATE, "adapter": "mlp"},
    "ewc": {"ewc_lambda": 15.0, "mode": "separate", "train_mb_size": 1, "lr": RATE},
}


def rounded(weights: Tensor) -> list[float]:
    return [float(f"{w:.7g}") for w in weights.tolist()]


def put(layer: nn.Linear, weights: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        layer.weight.copy_(weights[0])
        layer.bias.copy_(weights[1])


def record_hat(checkout: str) -> list[list[float]]:
    torch.autograd.Variable = lambda x, **ignored: x
    torch.Tensor.cuda = lambda self: self
    torch.nn.utils.clip_grad_norm = torch.nn.utils.clip_grad_norm_
    np.random.shuffle = lambda rows: None
    sys.path.insert(0, f"{checkout}/src")
    from approaches.hat import Appr
    from networks.mlp_hat import Net

    # one column of inputs as an image of one row
    net = Net(
        (FEATURES, 1, 1), [(t, len(own)) for t, own in enumerate(TASKS)], nlayers=2, nhid=HIDDEN, pdrop1=0, pdrop2=0
    )
    start = columns()[0]
    put(net.fc1, start.first)
    put(net.fc2, start.second)
    for head, own in zip(net.last, TASKS, strict=True):
        put(head, (start.head[0][list(own)], start.head[1][list(own)]))
    with torch.no_grad():
        net.efc1.weight.copy_(embeddings()[:, 0])
        net.efc2.weight.copy_(embeddings()[:, 1])
    s = SETTINGS["hat"]
    options = {key: value for key, value in s.items() if key not in ("lamb", "smax")}
    approach = Appr(net, args=Namespace(parameter=f"{s['lamb']},{s['smax']}"), **options)
    found = []
    for task, steps in enumerate(problem().steps):
        rows = torch.cat([step.rows for step in steps])[:, :, None, None]
        labels = torch.cat([step.labels for step in steps]) - TASKS[task][0]
        approach.train(task, rows, labels, rows, labels)
        heads = [torch.cat([head.weight for head in net.last]), torch.cat([head.bias for head in net.last])]
        gates = torch.stack([net.efc1.weight, net.efc2.weight], 1)
        layers = [net.fc1.weight, net.fc1.bias, net.fc2.weight, net.fc2.bias, *heads, gates]
        found.append(rounded(torch.cat([w.detach().reshape(-1) for w in layers])))
    return found


def stand_in(name: str, **content: object) -> None:
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(content)


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Single(nn.Module):
    """Stands for Avalanche's module of several tasks: all rows of a call are of one."""

    def forward(self, x: Tensor, task: int) -> Tensor:
        return self.forward_single_task(x, task)


class Heads(Single):
    """Stands for Avalanche's classifier with a head for each task."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(inputs, len(own)) for own in TASKS)

    def forward_single_task(self, x: Tensor, task: int) -> Tensor:
        return self.heads[task](x)


def record_pnn(checkout: str) -> list[list[float]]:
    stand_in("avalanche.benchmarks.utils.flat_data", ConstantSequence=list)
    stand_in("avalanche.models", MultiTaskModule=Single, MultiHeadClassifier=Heads)
    stand_in("avalanche.benchmarks.scenarios", CLExperience=object)
    net = loaded(f"{checkout}/avalanche/models/pnn.py").PNN(2, FEATURES, HIDDEN)
    found = []
    for task, (steps, layers) in enumerate(zip(problem().steps, columns(), strict=True)):
        for layer in net.layers:
            if task:
                layer._add_column()
            layer.task_to_module_idx[task] = task
        first, second = (layer.columns[task] for layer in net.layers)
        put(first.itoh, layers.first)
        put(second.itoh, layers.second)
        own = list(TASKS[task])
        put(net.classifier.heads[task], (layers.head[0][own], layers.head[1][own]))
        if task:
            with torch.no_grad():
                second.adapter.alphas.fill_(1)
                put(second.adapter.V, layers.reduce)
                second.adapter.U.weight.copy_(layers.expand)
                for silent in (second.adapter.U.bias, first.adapter.U.weight, first.adapter.U.bias):
                    silent.zero_().requires_grad_(False)
        optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=RATE)
        for step in steps:
            optimiser.zero_grad()
            F.cross_entropy(net(step.rows, task), step.labels - own[0]).backward()
            optimiser.step()
        adapter = second.adapter
        joined = [adapter.alphas, adapter.V.weight, adapter.V.bias, adapter.U.weight] if task else []
        head = net.classifier.heads[task]
        everything = [first.itoh.weight, first.itoh.bias, second.itoh.weight, second.itoh.bias, head.weight, head.bias]
        found.append(rounded(torch.cat([w.detach().reshape(-1) for w in (*everything, *joined)])))
    return found


def record_ewc(checkout: str) -> list[list[float]]:
    class Kept:
        """Stands for Avalanche's tensor that can grow."""

        def __init__(self, data: Tensor) -> None:
            self.data = data

        def expand(self, shape: object) -> Tensor:
            return self.data

    stand_in("avalanche.models.utils", avalanche_forward=lambda model, x, task: model(x))
    stand_in("avalanche.training.plugins.strategy_plugin", SupervisedPlugin=object)
    stand_in(
        "avalanche.training.utils",
        copy_params_dict=lambda model: {n: Kept(p.detach().clone()) for n, p in model.named_parameters()},
        zerolike_params_dict=lambda model: {n: Kept(torch.zeros_like(p)) for n, p in model.named_parameters()},
        ParamData=Kept,
    )
    s = SETTINGS["ewc"]
    plugin = loaded(f"{checkout}/avalanche/training/plugins/ewc.py").EWCPlugin(s["ewc_lambda"], s["mode"])
    net, found = Network(), []
    for task, steps in enumerate(problem().steps):
        optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
        strategy = Namespace(model=net, clock=Namespace(train_exp_counter=task), device="cpu", optimizer=optimiser,
                             _criterion=F.cross_entropy, train_mb_size=s["train_mb_size"])  # fmt: skip
        for step in steps:
            strategy.loss = F.cross_entropy(net(step.rows), step.labels)
            plugin.before_backward(strategy)
            optimiser.zero_grad()
            strategy.loss.backward()
            optimiser.step()
        rows, labels = (torch.cat([getattr(step, name) for step in steps]) for name in ("rows", "labels"))
        strategy.experience = Namespace(dataset=torch.utils.data.TensorDataset(rows, labels, torch.zeros(len(labels))))
        plugin.after_training_exp(strategy)
        found.append(rounded(weights_of(net)))
    return found


def commit_of(checkout: str) -> str:
    done = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def main() -> None:
    hat, avalanche, out = sys.argv[1:4]
    weights = {"ewc": record_ewc(avalanche), "pnn": record_pnn(avalanche), "hat": record_hat(hat)}
    document = {
        "peers": {"hat": ["joansj/hat", commit_of(hat)], "pnn": ["ContinualAI/avalanche", commit_of(avalanche)],
                  "ewc": ["ContinualAI/avalanche", commit_of(avalanche)]},
        "torch": torch.__version__,
        "settings": SETTINGS,
        "weights": weights,
    }  # fmt: skip
    Path(out).write_text(json.dumps(document))
    print({name: (len(w), round(sum(w[-1]), 6)) for name, w in weights.items()})


if __name__ == "__main__":
    main()
