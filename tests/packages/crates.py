"""The crates as cargo packs them, and the facts that several files of packages repeat."""

import json
import re
import tomllib

from support import expect, run

# What a crate must have, and what must stay in the repository.
HAS = {
    "tidings": ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs", "src/main.rs", "src/http/ui/assets/index.html.gz"],
    "tidings-actors": ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"],
}  # fmt: skip
HAS_NOT = ("tests/", "benches/", "actors/", "docs/deploy/", ".ci/", "target/")


def listed(crate):
    names = run("cargo", "package", "--list", "--allow-dirty", "--locked", "--package", crate).split()
    for name in HAS[crate]:
        expect(name in names, f"{crate} has no {name}")
    for name in names:
        expect(not name.startswith(HAS_NOT), f"{crate} carries {name}")


def packed():
    """Both at once, since one needs the other, which no registry has."""
    run("cargo", "package", "--workspace", "--allow-dirty", "--locked", "--offline", "--no-verify")


def same_licences():
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        expect(open(name).read() == open(f"actors/{name}").read(), f"actors/{name} is another text")


def archives():
    """cargo-binstall looks for the archives by the names that cargo-dist gives them."""
    about = tomllib.load(open("Cargo.toml", "rb"))
    package = about["package"]["metadata"]
    expect(package["binstall"]["bin-dir"].startswith("{ name }-{ target }/"), "cargo-dist puts the program into a folder")
    expect("{ archive-suffix }" in package["binstall"]["pkg-url"] and package["binstall"]["pkg-fmt"] == "txz", "cargo-dist packs .tar.xz")
    expect(package["dist"]["features"] == ["full"] and "full" in about["features"], "the archives have not all features")
    expect("dist" in about["profile"], "cargo-dist builds with the profile dist")


def versions():
    """One compiler for all: the image has the one that the image of the build names, or a newer one than is needed."""
    about = tomllib.load(open("Cargo.toml", "rb"))["workspace"]["package"]
    image = re.search(r"FROM docker\.io/library/rust:(\d+)\.(\d+)", open("docs/deploy/docker/Dockerfile").read())
    needed = tuple(map(int, about["rust-version"].split(".")[:2]))
    expect(tuple(map(int, image.groups())) >= needed, f"the image builds with {image[0]}, {needed} is needed")
    metadata = json.loads(run("cargo", "metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"))
    found = {package["version"] for package in metadata["packages"]}
    expect(found == {about["version"]}, f"the crates have the versions {found}")


def check(report, _program, _work):
    for crate in HAS:
        report.check(f"crates/{crate}", listed, crate)
    report.check("crates/packed", packed)
    report.check("crates/licences", same_licences)
    report.check("crates/archives", archives)
    report.check("crates/versions", versions)
