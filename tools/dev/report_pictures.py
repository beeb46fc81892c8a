#!/usr/bin/env python3
"""Makes the pictures of profile/README.md from a synthetic job: the HTML report in a headless Chromium, light and dark.

  MS_BIN=build/bin tools/dev/report_pictures.py [OUT=profile/report]
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import headless  # noqa: E402
import make_job  # noqa: E402

MSPROF = os.path.abspath(os.path.join(os.environ.get("MS_BIN", "build/bin"), "msprof"))
# Scrolled to the timeline, zoomed into one layer, a kernel selected.
TO_TIMELINE = """<script>
(function () {
  var view = document.getElementById('view'), find = document.getElementById('find');
  document.documentElement.style.scrollBehavior = 'auto';
  find.value = 'flash_fwd';
  find.dispatchEvent(new Event('input'));
  for (var i = 0; i < 5; ++i) document.getElementById('find-next').click();
  find.value = '';
  find.dispatchEvent(new Event('input'));
  for (var k = 0; k < 3; ++k) view.dispatchEvent(new KeyboardEvent('keydown', {key: 's', cancelable: true}));
  document.querySelectorAll('main > section').forEach(function (s) { if (s.id !== 'timeline' && s.id !== 'kernels') s.remove(); });
  document.querySelector('main').prepend(document.getElementById('timeline'));
})();
</script></body>"""


def main():
    out = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "profile", "report"))
    with tempfile.TemporaryDirectory() as folder:
        make_job.make(os.path.join(folder, "traces"))
        page, zoomed = os.path.join(folder, "report.html"), os.path.join(folder, "zoomed.html")
        subprocess.run([MSPROF, "report", "traces", "-o", page], cwd=folder, check=True, capture_output=True)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        with open(zoomed, "w", encoding="utf-8") as file:
            file.write(text.replace("</body>", TO_TIMELINE))
        for name, source, dark in (("report_light", page, False), ("report_dark", page, True), ("timeline_light", zoomed, False),
                                   ("timeline_dark", zoomed, True)):
            path = os.path.join(out, name + ".png")
            headless.screenshot(source, path, 1120, 720, dark)
            print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
