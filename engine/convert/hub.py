"""One repository of the Hugging Face hub: listed, downloaded and verified."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from engine.convert.repository import HubFile, Repository
from engine.errors import ModelFileError

logger = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT_S = 10.0
# The bases are the error class of the HTTP client, which is another one in each major version of
# huggingface_hub. ValueError is an answer that is not the hub's: a login page of some network.
_FAILURES: tuple[type[Exception], ...] = (OSError, ValueError, *HfHubHTTPError.__bases__)


class UnreachableError(Exception):
    """The hub gave no answer, or one that says nothing about the repository."""


@dataclass(frozen=True, slots=True)
class Hub:
    """A repository, through huggingface_hub; no revision means its main branch."""

    api: HfApi
    repo: str
    revision: str | None

    @classmethod
    def of(cls, repo: str, revision: str | None, token: str | None) -> Hub:
        """The repository at `HF_ENDPOINT`; without a token `HF_TOKEN` counts."""
        return cls(HfApi(os.environ.get("HF_ENDPOINT") or None, token), repo, revision)

    def listing(self) -> Repository:
        """The files of the revision's newest commit.

        Raises:
            ModelFileError: the repository is not there or may not be read.
            UnreachableError: the hub cannot be asked.
        """
        try:
            info = self.api.model_info(
                self.repo, revision=self.revision, timeout=_TIMEOUT_S, files_metadata=True
            )
            if not _COMMIT.fullmatch(info.sha or ""):
                raise ValueError(f"it names the commit {info.sha!r}")
        except _FAILURES as error:
            raise self._refusal(error) or UnreachableError(_reason(error)) from None
        files = {
            file.rfilename: HubFile(file.size or 0, file.lfs.sha256 if file.lfs else None)
            for file in info.siblings or ()
        }
        return Repository(self.repo, info.sha or "", files)

    def download(
        self, listing: Repository, names: list[str], *also: tuple[Path, int]
    ) -> dict[str, Path]:
        """Download files unless the hub's cache has them; returns where they lie.

        `also` are sizes in bytes that will be needed in other folders.

        Raises:
            ModelFileError: too little disk space, no access, a broken transfer, or a file that is
                not what the hub states, which is removed.
        """
        missing = [name for name in names if not self._is_cached(listing, name)]
        size = sum(listing.files[name].size for name in missing)
        _check_space(self.repo, (Path(constants.HF_HUB_CACHE), size), *also)
        if missing:
            logger.info("downloading %s of `%s`", _gigabytes(size), self.repo)
        return {name: self._file(listing, name) for name in names}

    def _is_cached(self, listing: Repository, name: str) -> bool:
        return isinstance(try_to_load_from_cache(self.repo, name, revision=listing.commit), str)

    def _file(self, listing: Repository, name: str) -> Path:
        try:
            path = Path(self.api.hf_hub_download(self.repo, name, revision=listing.commit))
        except _FAILURES as error:
            first = error.__cause__ or error
            raise (
                self._refusal(error)
                or self._refusal(first)
                or ModelFileError(f"cannot download `{name}` of `{self.repo}`: {_reason(first)}")
            ) from None
        _verify(path, listing.files[name], f"`{name}` of `{self.repo}`")
        return path

    def _refusal(self, error: BaseException) -> ModelFileError | None:
        """What a clear answer of the hub means; None for everything that may pass."""
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if isinstance(error, HFValidationError):
            return ModelFileError(f"`{self.repo}` is not a hub id: {error}")
        if isinstance(error, GatedRepoError):
            page = f"{self.api.endpoint}/{self.repo}"
            return ModelFileError(
                f"`{self.repo}` is gated: accept its terms at {page} and set `HF_TOKEN` to a token"
                " that may read it"
            )
        if isinstance(error, RevisionNotFoundError):
            return ModelFileError(f"`{self.repo}` has no revision {self.revision!r}")
        # For a repository that is not there, a visitor without a token gets a 401.
        if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
            return ModelFileError(
                f"the hub has no model `{self.repo}` that it would show: check the id and, if it"
                " is private, set `HF_TOKEN` to a token that may read it"
            )
        if status == 403:
            return ModelFileError(
                f"the hub refuses access to `{self.repo}`: set `HF_TOKEN` to a token that may"
                " read it"
            )
        return None


def _verify(path: Path, stated: HubFile, what: str) -> None:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found = hashlib.file_digest(file, "sha256").hexdigest() if stated.sha256 else None
    if size == stated.size and found == stated.sha256:
        return
    for wrong in (path.resolve(), path):
        wrong.unlink(missing_ok=True)
    raise ModelFileError(
        f"{what} is damaged: it has {size} bytes and SHA-256 {found}, where the hub states"
        f" {stated.size} and {stated.sha256}; it was removed, so run the command again"
    )


def _check_space(repo: str, *needs: tuple[Path, int]) -> None:
    disks: dict[int, tuple[Path, int]] = {}
    for path, size in needs:
        there = next(
            folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists()
        )
        disk = there.stat().st_dev
        disks[disk] = (there, size + disks.get(disk, (there, 0))[1])
    for there, size in disks.values():
        free = shutil.disk_usage(there).free
        if size > free:
            raise ModelFileError(
                f"`{repo}` needs {_gigabytes(size)} on the disk of `{there}`, where"
                f" {_gigabytes(free)} are free; `HF_HOME` and `FRAMECAST_CACHE` say where models"
                " are kept"
            )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


__all__ = ["Hub", "UnreachableError"]
