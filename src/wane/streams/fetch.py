"""A publisher's archive on the disk: found, fetched, checked and unpacked, with nothing half-written.

Everything happens in a scratch folder beside the target, which is renamed into place as the very last step.
So a target folder that exists is complete, even if an earlier attempt was killed.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from wane.streams.dataset import DataError
from wane.streams.progress import progress_bar


@dataclass(frozen=True)
class Archive:
    """What a publisher ships.

    Attributes:
        url: where it is.
        checksum: "md5:..." or "sha256:..." of the archive.
        folder: the one folder inside it, which is also its name below the root.
        members: files that the folder must hold.
    """

    url: str
    checksum: str
    folder: str
    members: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The archive's own name: the last part of its address."""
        return self.url.rsplit("/", 1)[-1]


def data_root(root: str | Path | None = None) -> Path:
    """Where data sets live: `root`, or the environment's WANE_DATA, or the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if configured := os.environ.get("WANE_DATA"):
        return Path(configured).expanduser()
    import pooch

    return Path(pooch.os_cache("wane"))


def ensure_folder(archive: Archive, root: Path, *, download: bool = True) -> Path:
    """The archive's folder below `root`, fetched first if it is not there.

    A folder that is there is used as it is. An archive that is there (root/file name) is checked and
    unpacked, and kept; one that had to be downloaded is not kept.
    """
    target = root / archive.folder
    if target.exists():
        _require_members(archive, target, "delete the folder to fetch it again, or complete it")
        return target
    local = root / archive.file_name
    if not local.exists() and not download:
        raise DataError(
            f"{target} does not exist and download=False: put the publisher's folder or {archive.file_name} "
            f"there (from {archive.url}), or allow the download"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(prefix=f".{archive.folder}-", dir=root)
    except OSError as error:
        raise DataError(
            f"cannot write below {root} ({error}): choose another folder with root= or WANE_DATA"
        ) from error
    try:
        is_local = local.exists()
        source = local if is_local else _download(archive, Path(scratch))
        # What an error quotes must be something the user can look at, which scratch is not.
        origin = str(local) if is_local else archive.url
        _verify(archive, source, origin)
        folder = _unpack(source, Path(scratch) / "unpacked", origin) / archive.folder
        _require_members(archive, folder, "it is not the archive that was expected", shown=origin)
        _rename(folder, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _rename(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        # Another process may have been faster: its folder is as good as ours.
        if not target.is_dir():
            raise


def _require_members(archive: Archive, folder: Path, advice: str, shown: str = "") -> None:
    for member in archive.members:
        if not (folder / member).exists():
            raise DataError(f"{shown or folder} has no {member}: {advice}")


def _download(archive: Archive, scratch: Path) -> Path:
    import pooch
    import requests

    path = scratch / archive.file_name
    try:
        with progress_bar(f"fetching {archive.url}", in_bytes=True) as bar:
            pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(archive.url, str(path), None)
    except (requests.RequestException, OSError) as error:
        raise DataError(
            f"could not fetch {archive.url} ({error}): nothing was kept; try again, or put "
            f"{archive.file_name} into {scratch.parent} by hand"
        ) from error
    return path


def _verify(archive: Archive, path: Path, origin: str) -> None:
    import pooch

    algorithm, _, expected = archive.checksum.partition(":")
    found = pooch.file_hash(str(path), alg=algorithm)
    if found != expected:
        raise DataError(
            f"{origin} ({path.stat().st_size:,} bytes) is damaged or not the right file: its {algorithm} is "
            f"{found}, not {expected}; delete it if you put it there, and fetch it again"
        )


def _unpack(source: Path, target: Path, origin: str) -> Path:
    """Unpack a tar or zip whose every member is a plain file or folder that stays below `target`."""
    try:
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as members:
                for info in members.infolist():
                    # Only archives made on Unix record a file type; 0 means that there is none.
                    kind = stat.S_IFMT(info.external_attr >> 16)
                    # orig_filename: on Windows zipfile turns backslashes into slashes
                    _require_plain(info.orig_filename, kind in (0, stat.S_IFREG, stat.S_IFDIR), origin)
                members.extractall(target)
        else:
            _unpack_tar(source, target, origin)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # RuntimeError: an encrypted zip, or a compression that this Python cannot read
        raise DataError(
            f"could not unpack {origin} ({type(error).__name__}: {error}): nothing was kept; see that the "
            f"archive is whole and that there is room on the disk"
        ) from error
    return target


def _unpack_tar(source: Path, target: Path, origin: str) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise DataError(
            f"this Python ({platform.python_version()}) cannot unpack {origin} safely: use 3.11.4 or later, or put the "
            f"unpacked folder there yourself"
        )

    def plain(info: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        _require_plain(info.name, info.isdir() or info.isreg(), origin)
        return tarfile.data_filter(info, path)

    with tarfile.open(source) as members:
        members.extractall(target, filter=plain)


def _require_plain(name: str, is_plain: bool, origin: str) -> None:
    """Refuse links and devices, and paths that lead elsewhere on this or another system.

    The filter of `tarfile` would make absolute paths relative and let links within the archive pass; no publisher's
    archive has either.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts or "\0" in name:
        raise DataError(f"{origin} holds a path that climbs out, {name!r}: refused, fetch it from its publisher")
    if not is_plain:
        raise DataError(f"{origin} holds a link or device, {name!r}: refused, fetch it from its publisher")
