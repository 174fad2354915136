"""CPU microseconds an image of wane's data path, beside a pipeline of PIL transforms, image by image, in the
same run.

    python benchmarks/bench_data_path.py [--threads 1] [--repeats 15]

Reads CPU time, not wall time, so that a busy machine disturbs less; the minimum over repeats is the number to
quote. The PIL pipeline is what torchvision's transforms do (fromarray, pad and crop, flip, to float,
normalise), written out here so that torchvision need not be installed.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from PIL import Image, ImageOps

from wane.streams import crop_and_flip, eval_batch, normalise

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
TARGET = 30.0  # microseconds an image, train


def to_float(image):
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    return tensor.sub_(mean[:, None, None]).div_(std[:, None, None])


def pil_train(arrays, index, generator):
    rows = []
    for i in index.tolist():
        image = ImageOps.expand(Image.fromarray(arrays[i]), border=4, fill=0)
        top, left = torch.randint(0, 9, (2,), generator=generator).tolist()
        image = image.crop((left, top, left + 32, top + 32))
        if torch.rand(1, generator=generator).item() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        rows.append(to_float(image))
    return torch.stack(rows)


def pil_eval(arrays, index):
    return torch.stack([to_float(Image.fromarray(arrays[i])) for i in index.tolist()])


def microseconds(function, images, repeats):
    function()
    times = []
    calls = max(1, 1024 // images)
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(calls):
            function()
        times.append((time.process_time() - start) / (calls * images) * 1e6)
    return min(times), statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    arrays = images.permute(0, 2, 3, 1).contiguous().numpy()
    print(f"torch {torch.__version__}, {args.threads} thread(s), 3 x 32 x 32, CPU microseconds an image")
    print(f"{'path':<28}{'batch':>6}{'min':>8}{'median':>8}{'PIL / this':>12}")
    worst = 0.0
    for batch in (64, 512):
        index = torch.randint(len(images), (batch,), generator=generator)
        for kind in ("train", "eval"):
            if kind == "train":
                pil = microseconds(lambda i=index: pil_train(arrays, i, generator), batch, max(3, args.repeats // 3))
            else:
                pil = microseconds(lambda i=index: pil_eval(arrays, i), batch, max(3, args.repeats // 3))
            print(f"{f'{kind}, PIL per image':<28}{batch:>6}{pil[0]:>8.1f}{pil[1]:>8.1f}{1:>12.1f}")
            for channels_last in (False, True):

                def ours(i=index, kind=kind, channels_last=channels_last):
                    if kind == "eval":
                        return eval_batch(images, i, MEAN, STD, channels_last=channels_last)
                    moved = crop_and_flip(images.index_select(0, i), 4, True, generator)
                    return normalise(moved, MEAN, STD, channels_last=channels_last)

                low, middle = microseconds(ours, batch, args.repeats)
                worst = max(worst, low) if kind == "train" else worst
                name = f"{kind}, wane{', channels_last' if channels_last else ''}"
                print(f"{name:<28}{batch:>6}{low:>8.1f}{middle:>8.1f}{pil[0] / low:>12.1f}")
    print(f"train, worst minimum: {worst:.1f} of at most {TARGET:.0f}: {'met' if worst <= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
