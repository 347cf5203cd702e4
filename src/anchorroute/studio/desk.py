"""What the panels of a page share, and the panel base class.

Widgets answer on the page's own thread (`inbox.Inbox`), in order. Viser calls `async` handlers on its event loop one
after the other, so all they do here is post.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import viser

from anchorroute.errors import AnchorRouteError
from anchorroute.studio.inbox import Act, Inbox
from anchorroute.studio.player import Player
from anchorroute.studio.session import Session

log = logging.getLogger(__name__)


@dataclass
class Desk:
    """What panels share: the browser, its session, the cursor and the selected anchor."""

    client: viser.ClientHandle
    session: Session
    player: Player
    inbox: Inbox
    selected: int | None = None
    select: Callable[[int | None], None] = field(default=lambda _: None)
    redraw: Callable[[], None] = field(default=lambda: None)

    def attempt(self, act: Act) -> None:
        """Do what a person asked; a refusal is shown, not raised, and the widgets go back to what holds."""
        try:
            act()
        except AnchorRouteError as error:
            self.tell("That does not work", str(error))
            self.redraw()
        except Exception as error:
            log.exception("an unexpected fault")
            self.tell("Unexpected fault", f"{type(error).__name__}: {error}")
            self.redraw()

    def later(self, act: Act, key: Any = None) -> None:
        """`attempt` it on the page's thread."""
        self.inbox.post(lambda: self.attempt(act), key)

    def tell(self, title: str, text: str, colour: Any = "red") -> None:
        """A notification in the page."""
        self.client.add_notification(title, text, color=colour, auto_close_seconds=8.0)


class Panel:
    """What all panels have."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def _on(self, handle: Any, act: Callable[[Any], object]) -> None:
        """Call `act` with the new value when a person changes the widget."""

        async def changed(event: Any) -> None:
            if event.client is not None:  # None: the program changed it
                value = event.target.value
                self.desk.later(lambda: act(value), ("widget", id(handle)))

        handle.on_update(changed)

    def _put(self, handle: Any, value: Any) -> None:
        """Show a value, unless the person has changed the widget and that has not been looked at yet."""
        if not self.desk.inbox.holds(("widget", id(handle))):
            handle.value = value

    def _button(self, label: str, act: Act, **look: Any) -> Any:
        button = self.desk.client.gui.add_button(label, **look)

        async def clicked(_: Any) -> None:
            self.desk.later(act)

        button.on_click(clicked)
        return button

    def _command(self, label: str, act: Act, hotkey: Any, modifier: Any = None) -> None:
        """A key, which is also an entry of the command palette."""

        async def trigger(_: Any) -> None:
            self.desk.later(act)

        self.desk.client.gui.add_command(label, hotkey=hotkey, modifier=modifier).on_trigger(trigger)
