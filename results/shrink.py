"""Give the pictures of this folder a palette of 256 colours: a third of the bytes, and no difference to the eye.

    python results/shrink.py

The last step of `make results`. A picture that has a palette already is left alone.
"""

import io
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent


def shrunk(picture: bytes) -> bytes:
    """A PNG with a palette."""
    image = Image.open(io.BytesIO(picture))
    if image.mode == "P":
        return picture
    buffer = io.BytesIO()
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    for path in sorted(HERE.glob("**/*.png")):
        path.write_bytes(shrunk(path.read_bytes()))
