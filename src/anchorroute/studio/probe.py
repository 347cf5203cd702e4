"""A browser tab without a browser: it speaks viser's protocol, so that the server can be tested and measured.

It draws nothing. It knows the widgets by their labels, presses and changes them as a page would, remembers what it
was told last, and counts the bytes.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import viser
import zstandard
from viser import _messages as wire
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


class Tab:
    """One connection to a studio."""

    def __init__(self, port: int, storage: dict[str, str] | None = None) -> None:
        self.storage = {} if storage is None else storage
        self.bytes = 0
        self.widgets: dict[str, dict[str, Any]] = {}
        """By label: uuid, value and properties, as they are now."""
        self.nodes: dict[str, str] = {}
        """The scene's nodes by name, with the owner that an answer must name."""
        self.made: dict[str, float] = {}
        """When a node was last made, by its name."""
        self.bones: dict[str, float] = {}
        """When a skinned mesh was last posed, by its name."""
        self.notes: list[str] = []
        self.files: list[str] = []
        self._by_uuid: dict[str, dict[str, Any]] = {}
        self._condition = threading.Condition()
        self._socket = connect(
            f"ws://127.0.0.1:{port}",
            subprotocols=[f"viser-v{viser.__version__}"],  # type: ignore[list-item]
            max_size=None,
            compression=None,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        turned, up = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0)
        self._send(wire.ViewerCameraMessage(turned, (0.0, 1.0, 5.0), 1.0, 0.1, 100.0, 600, 900, (0.0, 1.0, 0.0), up))

    def press(self, label: str) -> None:
        """Click a button."""
        self.change(label, True)

    def change(self, label: str, value: Any) -> None:
        """Give a widget another value."""
        widget = self.widgets[label]
        widget["value"] = value
        self._send(wire.GuiUpdateMessage(widget["uuid"], {"value": value}))

    def choose(self, option: str) -> None:
        """Press one of a group's buttons."""
        group = next(one for one in self.widgets.values() if option in (one.get("options") or ()))
        self._send(wire.GuiUpdateMessage(group["uuid"], {"value": option}))

    def click(self, node: str, origin: tuple[float, float, float], direction: tuple[float, float, float]) -> None:
        """Click a node of the scene along a ray."""
        owner = self.nodes[node]
        self._send(wire.SceneNodeClickMessage(node, None, origin, direction, (0.5, 0.5), None, owner))

    def drag(self, node: str, places: list[tuple[float, float, float]], pause: float = 0.0) -> None:
        """Drag a gizmo through these places."""
        owner = self.nodes[node]
        self._send(wire.TransformControlsDragStartMessage(node, owner))
        for place in places:
            self._send(wire.TransformControlsUpdateMessage(node, (1.0, 0.0, 0.0, 0.0), place, owner))
            time.sleep(pause)
        self._send(wire.TransformControlsDragEndMessage(node, owner))

    def wait(self, true: Callable[["Tab"], object], timeout: float = 60.0) -> None:
        """Until something holds of what the tab was told."""
        with self._condition:
            if not self._condition.wait_for(lambda: bool(true(self)), timeout):
                raise TimeoutError(f"not within {timeout:g} s; notes: {self.notes}; widgets: {sorted(self.widgets)}")

    def close(self) -> None:
        """Leave."""
        self._socket.close()
        self._thread.join(timeout=10.0)

    def _send(self, message: Any) -> None:
        self._socket.send(msgspec.msgpack.encode(message.as_serializable_dict()))

    def _listen(self) -> None:
        unzip = zstandard.ZstdDecompressor()
        try:
            for frame in self._socket:
                if not isinstance(frame, bytes):
                    continue
                plain, packed = int.from_bytes(frame[:8], "little"), int.from_bytes(frame[8:16], "little")
                content = unzip.decompress(frame[16 : 16 + packed], max_output_size=plain)
                with self._condition:
                    self.bytes += len(frame)
                    for message in msgspec.msgpack.decode(content)["messages"]:
                        self._hear(message)
                    self._condition.notify_all()
        except ConnectionClosed:
            pass

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "LocalStorageGetItemRequestMessage":
            value = self.storage.get(message["key"])
            self._send(wire.LocalStorageGetItemResponseMessage(value, None, message["request_uuid"]))
        elif kind == "LocalStorageSetItemMessage":
            self.storage[message["key"]] = message["value"]
        elif kind == "GuiUpdateMessage":
            self._by_uuid.get(message["uuid"], {}).update(message["updates"])
        elif kind.startswith("Gui") and "props" in message and "uuid" in message:
            widget = {"uuid": message["uuid"], "value": message.get("value"), **message["props"]}
            self._by_uuid[message["uuid"]] = widget
            # Undo and redo wear what they would do as labels: they are known by their first one.
            self.widgets[str(widget.get("label") or f"{kind}-{len(self.widgets)}")] = widget
        elif kind in ("SetBonePositionMessage", "SetBoneOrientationMessage"):
            self.bones[message["name"]] = time.monotonic()
        elif kind == "NotificationShowMessage":
            self.notes.append(str(message["props"]["body"]))
        elif kind == "FileTransferStartDownload":
            self.files.append(str(message["filename"]))
        elif kind == "RemoveSceneNodeMessage":
            self.nodes.pop(message["name"], None)
        elif "props" in message and "name" in message:
            self.nodes[message["name"]] = message.get("owner", "")
            self.made[message["name"]] = time.monotonic()
