"""Projects and motions in and out of the browser: uploads are bytes, downloads are bytes, no path is ever asked for."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import viser

from anchorroute.anchors import AnchorSet
from anchorroute.errors import FormatError
from anchorroute.motion.motion import Motion
from anchorroute.report import measure
from anchorroute.studio import project
from anchorroute.studio.desk import Desk, Panel

_FORMATS = (".glb", ".bvh", ".npz", ".html")
#: Larger uploads are refused unread.
_LARGEST = 200 * 2**20


class FilePanel(Panel):
    """Save, open, import, export."""

    def __init__(self, desk: Desk, picture: Callable[[], bytes]) -> None:
        super().__init__(desk)
        gui = desk.client.gui
        self._picture = picture
        for ending in _FORMATS:
            self._apart(f"Export {ending[1:].upper()}", partial(self.export, ending))
        self._apart("Export PNG", self._export_picture)
        self._apart("Save project", self._save, icon=viser.Icon.DEVICE_FLOPPY)
        opener = gui.add_upload_button("Open project or anchors", mime_type=".json")
        importer = gui.add_upload_button("Import motion (BVH, NPZ, GLB)", mime_type=".bvh,.npz,.glb")
        opener.on_upload(lambda event: desk.attempt(lambda: self._open(event.target.value)))
        importer.on_upload(lambda event: desk.attempt(lambda: self._import(event.target.value)))

    def _apart(self, label: str, act: Callable[[], object], **look: Any) -> None:
        """A button whose work reads the document and takes long: on a thread of the server's pool, as all handlers
        are that are not `async`, so that playback and edits go on."""
        button = self.desk.client.gui.add_button(label, **look)
        button.on_click(lambda _: self.desk.attempt(act))

    def export(self, ending: str) -> None:
        """The shown motion as a file, written, read back and measured before it is sent."""
        motion = self.desk.session.motion()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"motion{ending}"
            motion.save(path)
            report = measure(path, self.desk.session.document.anchor_set())
            payload = path.read_bytes()
        self.desk.client.send_file_download(f"motion{ending}", payload, save_immediately=True)
        said = f"{report.met} of {len(report.anchors)} anchors met in the file, worst {report.worst_mm:.2f} mm"
        self.desk.tell(f"motion{ending}", said, "green")

    def _export_picture(self) -> None:
        self.desk.client.send_file_download("motion.png", self._picture(), save_immediately=True)

    def _save(self) -> None:
        text = project.to_text(self.desk.session.document)
        self.desk.client.send_file_download("project.json", text.encode(), save_immediately=True)

    def _open(self, upload: Any) -> None:
        content = _content(upload)
        if project.FORMAT.encode() in content[:200]:
            opened = project.from_text(content)
            self.desk.session.replace_document(opened, "open a project")
            return
        anchors = AnchorSet.from_json(content)
        self.desk.session.edit("open anchors", lambda document: document.with_anchors(anchors))

    def _import(self, upload: Any) -> None:
        content, ending = _content(upload), Path(upload.name).suffix.lower()
        if ending not in (".bvh", ".npz", ".glb"):
            raise FormatError(f"{ending or 'a file without ending'}: motions are imported from .bvh, .npz and .glb")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"upload{ending}"  # our own name: the client's decides nothing but the format
            path.write_bytes(content)
            motion = Motion.load(path)
        self.desk.session.import_motion(motion, "a motion")


def _content(upload: Any) -> bytes:
    content: bytes = upload.content
    if len(content) > _LARGEST:
        raise FormatError(f"a file of {len(content) / 2**20:.0f} MiB; up to {_LARGEST // 2**20} MiB can be opened")
    return content
