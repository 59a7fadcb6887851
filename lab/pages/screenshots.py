"""Writes the pictures of the pages in docs/images/: `python -m lab.pages screenshots [FOLDER]`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from afterturn import blocking
from lab.pages.browser import serving_pages, start_browser
from lab.pages.world import build

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
BYTES_MAX = 150_000
_WIDE, _NARROW = (1440, 900), (360, 780)


@dataclass(frozen=True, slots=True)
class Picture:
    """`part` is the element that is shown, instead of what fits into the window."""

    name: str
    path: str
    size: tuple[int, int] = _WIDE
    scheme: Any = "light"
    part: str = ""
    opened: str = ""


def pictures(turn: str) -> list[Picture]:
    return [
        Picture("turn", turn),
        Picture("turn-dark", turn, scheme="dark"),
        Picture("turn-narrow", turn, _NARROW),
        Picture("fix", turn, opened=".fix summary"),
        Picture("timeline", turn, part="section:has(> .waterfall)"),
        Picture("live", "/"),
        Picture("live-narrow", "/", _NARROW, "dark"),
        Picture("memories", "/memories"),
        Picture("inbox", "/inbox"),
        Picture("about", "/about/user:ada"),
        Picture("health", "/health"),
    ]


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "memory.db"
        os.environ["AFTERTURN_STATE"] = str(store.parent / "state")
        asyncio.run(build(store))
        with blocking.open(store, {"background": False}) as memory:
            first = memory.conversation("heron-release", owner="user:ada").trace().turns[0].turn.id
        turn = f"/turns/{first}?owner=user:ada&conversation=heron-release"
        with serving_pages(store) as link, sync_playwright() as playwright:
            browser = start_browser(playwright)
            context = browser.new_context()
            context.new_page().goto(link)
            state: Any = context.storage_state()
            for picture in pictures(turn):
                take(browser, link.partition("/login")[0], state, picture, folder / f"inspector-{picture.name}.png")


def take(browser: Browser, url: str, state: Any, picture: Picture, path: Path) -> None:
    width, height = picture.size
    context = browser.new_context(
        base_url=url,
        storage_state=state,
        viewport={"width": width, "height": height},
        color_scheme=picture.scheme,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(picture.path)
    if picture.opened:
        page.locator(picture.opened).first.click()
    if picture.part:
        page.locator(picture.part).screenshot(path=path)
    else:
        page.screenshot(path=path)
    context.close()
    shrink(path)
    size = path.stat().st_size
    assert size <= BYTES_MAX, f"{path} has {size:,} bytes"
    print(f"{path.name}: {size:,} bytes")


def shrink(path: Path) -> None:
    """Few colours are enough for a page."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
