"""How the demo is told: headings, figures, and claims that are checked as they are made."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


class Stage:
    """Prints, and remembers what did not hold. Works on a terminal and without one."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._act = 0
        self.broken: list[str] = []
        """Claims that did not hold."""

    def act(self, title: str) -> None:
        self._act += 1
        self._print("")
        self._print(f"{self._act}. {title}", "bold cyan")

    def say(self, text: str) -> None:
        self._print(f"   {text}", "dim")

    def figure(self, name: str, value: str) -> None:
        self._print(f"   {name:<34} {value}")

    def claim(self, text: str, holds: bool) -> None:
        """Something that has just been checked."""
        self._print(f"   {'✓' if holds else '✗'} {text}", "green" if holds else "bold red")
        if not holds:
            self.broken.append(text)

    def title(self, text: str) -> None:
        self._print(text, "bold")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)
