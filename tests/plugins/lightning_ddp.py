"""A fit in two processes, as a user would start it: `python lightning_ddp.py FOLDER`. See test_lightning.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import lightning as L
import torch
from plugins.digits import digits
from plugins.test_lightning import Net, loader, trainer
from torch.utils.data import DataLoader, TensorDataset

import wane
from wane.plugins.lightning import HistoryCallback

if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    folder = Path(sys.argv[1])
    images, labels = digits(test=True)
    even = len(labels) // 2 * 2  # of an odd number the sampler would repeat one
    test = DataLoader(TensorDataset(images[:even], labels[:even]), batch_size=50)
    callback = HistoryCallback(wane.History(class_to_task=[0] * 10), folder=folder / "run")
    net = Net()
    fit = trainer(folder, callback, devices=2, strategy="ddp", max_epochs=2)
    fit.fit(net, loader(), test)
    callback.history.write(folder / f"history{fit.global_rank}.parquet")
    if fit.is_global_zero:
        torch.save(net.state_dict(), folder / "weights.pt")
