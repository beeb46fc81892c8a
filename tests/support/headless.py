"""Opens a page in a headless Chromium and runs a script in it: for tests and benchmarks of the HTML report."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
MARK = "msprof-probe:"


def browser():
    """The path of a browser (MS_CHROMIUM, or one of BROWSERS), or None."""
    return os.environ.get("MS_CHROMIUM") or next((path for path in map(shutil.which, BROWSERS) if path), None)


def run(page, script, flags=(), timeout=100):
    """Returns the text that `script` passes to done(text), and everything else that the page wrote to the console.

    script: a function body that runs after the page's own scripts, in real time.
    """
    with open(page, encoding="utf-8") as file:
        text = file.read()
    probe = f"<script>(function(){{function done(text){{console.log({MARK!r}+JSON.stringify(text));}}\n{script}\n}})();</script>"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # its processes die after it
        probed = os.path.join(folder, "page.html")
        with open(probed, "w", encoding="utf-8") as file:
            file.write(text.replace("</body>", probe + "</body>"))
        command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--remote-debugging-port=0",
                   "--no-first-run", "--disable-background-networking", f"--user-data-dir={folder}/profile", "--window-size=1400,1000",
                   *flags, "file://" + probed]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True)

        def kill():  # with the processes that it started
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

        timer = threading.Timer(timeout, kill)
        timer.start()
        answer, console, lines = None, [], []
        try:
            for line in process.stderr:
                lines.append(line)
                if ":CONSOLE" not in line:
                    continue
                found = re.search(r'"' + MARK + r'(".*?")", source', line)
                if found:
                    answer = found.group(1).encode().decode("unicode_escape")[1:-1]
                    break
                console.append(line.strip())
        finally:
            timer.cancel()
            kill()
            process.wait()
            process.stderr.close()
    if answer is None:
        raise RuntimeError("the page did not answer:\n" + "".join(lines[-20:]))
    return answer, console


def screenshot(page, out, width=1400, height=1000, dark=False, timeout=100):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={out}",
                        f"--window-size={width},{height}", f"--user-data-dir={folder}", *(["--blink-settings=preferredColorScheme=0"] if dark else []),
                        "file://" + os.path.abspath(page)], check=True, capture_output=True, timeout=timeout)
