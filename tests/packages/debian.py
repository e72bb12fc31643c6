"""The Debian package: built, installed into a scratch root, verified, started, removed; and the unit of systemd."""

import gzip
import json
import os
import stat
import subprocess

from support import Failed, ended_in_order, expect, get, plain_environment, run, service

UNIT = "docs/deploy/systemd/tidings.service"
CONFIGURATION = "etc/tidings/tidings.toml"


class Package:
    def __init__(self, program, work):
        self.program, self.work = program, work
        self.root = work / "root"
        self.file = None

    def dpkg(self, *arguments):
        """dpkg on the scratch root, whose packages' scripts run outside of it and must touch nothing there."""
        options = ["--force-not-root", "--force-script-chrootless", "--force-depends"]
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        return run("dpkg", f"--root={self.root}", f"--log={self.work / 'dpkg.log'}", *options, *arguments, env=environment)

    def build(self):
        # As a build with the profile `dist` is; the tables of a debug build would be compressed for a minute.
        stripped = self.work / "tidings"
        run("strip", "-o", stripped, self.program)
        self.program = stripped

        quick = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}

        def once(name):
            return run("docs/deploy/debian/build", self.program, self.work / name, env=quick).strip()

        first, second = once("first"), once("second")
        with open(first, "rb") as one, open(second, "rb") as other:
            expect(one.read() == other.read(), "two builds of one program differ")
        self.file = first
        fields = run("dpkg-deb", "--field", first)
        version = run(self.program, "--version").split()[1]
        expect(f"Version: {version}\n" in fields, f"the program is {version}, the package says\n{fields}")
        expect("Depends: libc6 (>= 2." in fields, f"a dynamic program needs its C library:\n{fields}")

    def install(self):
        (self.root / "var/lib/dpkg/info").mkdir(parents=True)
        (self.root / "var/lib/dpkg/updates").mkdir()
        (self.root / "var/lib/dpkg/status").touch()
        self.dpkg("--install", self.file)
        found = run("dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "--show", "--showformat=${Status}", "tidings")
        expect(found == "install ok installed", f"dpkg says: {found}")
        altered = self.dpkg("--verify", "tidings")
        expect(altered == "", f"installed files differ from the package:\n{altered}")

    def modes(self):
        for folder, _, files in os.walk(self.root / "usr"):
            for name in files:
                path = os.path.join(folder, name)
                mode = stat.S_IMODE(os.stat(path).st_mode)
                expected = 0o755 if path.endswith("/bin/tidings") else 0o644
                expect(mode == expected, f"{path} has the mode {mode:o}")

    def manuals(self):
        """Every command has a page, which groff formats without a warning."""
        folder = self.root / "usr/share/man/man1"
        pages = sorted(folder.iterdir())
        names = {page.name for page in pages}
        commands = [line.split()[0] for line in run(self.program, "help").split("Commands:\n")[1].split("\n\n")[0].splitlines() if line.startswith("  ") and line[2] != " "]
        expect(len(commands) > 10, f"only the commands {commands}")
        for command in commands:
            expect(command == "help" or f"tidings-{command}.1.gz" in names, f"no manual of {command} among {sorted(names)}")
        for page in pages:
            text = gzip.decompress(page.read_bytes())
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=text, capture_output=True, timeout=60)
            expect(done.returncode == 0 and not done.stderr, f"{page.name}: {done.stderr.decode()}")

    def completions(self):
        """bash completes a subcommand; the texts of the other shells name it."""
        script = self.root / "usr/share/bash-completion/completions/tidings"
        asked = f'. {script}; COMP_WORDS=(tidings heal); COMP_CWORD=1; _tidings tidings heal tidings; echo "${{COMPREPLY[*]}}"'
        expect(run("bash", "-c", asked).split() == ["health"], "bash does not complete `tidings heal`")
        for name in ("zsh/vendor-completions/_tidings", "fish/vendor_completions.d/tidings.fish"):
            expect("health" in (self.root / "usr/share" / name).read_text(), f"{name} does not know health")

    def start(self):
        """The installed program with the installed configuration, on another port."""
        program = self.root / "usr/bin/tidings"
        command = [program, "serve", "--config", self.root / CONFIGURATION, "--data", self.work / "state", "--listen", "127.0.0.1:0"]
        with service(command, self.work / "installed.log", env=plain_environment()) as (started, port):
            run(program, "health", "--ready", "--url", f"http://127.0.0.1:{port}", env=plain_environment())
            status, _, body = get(port, "/v1/resources")
            expect(status == 200 and json.loads(body)["items"] == [], f"GET /v1/resources: {status} {body}")
            ended_in_order(started)
        run(program, "serve", "--config", self.root / CONFIGURATION, "--check-config", env=plain_environment())

    def verify_unit(self):
        """systemd reads the unit: keys that it does not know and programs that are missing are told."""
        installed = (self.root / "usr/lib/systemd/system/tidings.service").read_text()
        unit = self.work / "tidings.service"
        # Of the rest of a system the scratch root has nothing, so the unit is read in this one.
        unit.write_text(installed.replace("/usr/bin/tidings ", f"{self.root}/usr/bin/tidings "))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60
        )  # fmt: skip
        said = [line for line in done.stderr.splitlines() if "tidings" in line]
        expect(done.returncode == 0 and not said, f"systemd-analyze ends with {done.returncode}: {done.stderr}")

    def exposure(self):
        run("systemd-analyze", "security", "--offline=true", "--threshold=20", UNIT)

    def remove(self):
        """A purge leaves nothing behind, of what the service has kept either."""
        kept = self.root / "var/lib/private/tidings"
        kept.mkdir(parents=True)
        (kept / "store").touch()
        self.dpkg("--purge", "tidings")
        left = [os.path.join(folder, name) for folder, _, names in os.walk(self.root) for name in names if "tidings" in os.path.join(folder, name)]
        expect(not left and not kept.exists(), f"a purge leaves {left or kept}")


def check(report, program, work):
    package = Package(program, work)
    report.check("debian/build", package.build)
    if package.file is None:
        return
    report.check("debian/install", package.install)
    report.check("debian/modes", package.modes)
    report.check("debian/manuals", package.manuals)
    report.check("debian/completions", package.completions)
    report.check("debian/start", package.start)
    report.check("systemd/verify", package.verify_unit)
    report.check("systemd/exposure", package.exposure)
    report.check("debian/remove", package.remove)
