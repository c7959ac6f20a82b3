"""The recipes as programs: each is built from its block of the page and the holder of its language."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor

import page

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "target/recipes"
# Seconds for a build, which may fetch a driver, and for an answer; a busy machine is slow.
BUILT = 600
PATHS = ("/usr/local/go/bin", "/usr/lib/go/bin", str(pathlib.Path.home() / ".cargo/bin"))
PATH = os.pathsep.join([os.environ["PATH"], *PATHS])


class Missing(Exception):
    """A tool is not there: which, and what to do."""


class Recipe:
    """One of the page: its heading, its language, its folder here, and the name of its file."""

    def __init__(self, name: str, language: str, folder: str, file: str, *tools: str) -> None:
        self.name, self.language, self.folder, self.file, self.tools = name, language, folder, file, tools
        self.work = WORK / name

    def command(self) -> list[str]:
        """Builds the holder, and says how it is started."""
        for tool in self.tools:
            if shutil.which(tool, path=PATH) is None:
                raise Missing(f"the recipe for {self.name} needs `{tool}`; .ci/run says how it is installed")
        self.work.mkdir(parents=True, exist_ok=True)
        for file in (HERE / self.folder).iterdir():
            if file.is_file():
                copy(self.work / file.name, file.read_text())
        copy(self.work / self.file, self.block())
        build = getattr(self, f"_{self.folder}")
        return build()

    def block(self) -> str:
        """The recipe, as it is printed; documents have no tabs, and Go has nothing else."""
        block = page.block(self.name, self.language)
        return block.replace("    ", "\t") if self.language == "go" else block

    def _python(self) -> list[str]:
        if self.name == "redis-py":
            shutil.copy(ROOT / "crates/guard/lua/redis.lua", self.work)
        return [sys.executable, "holder.py", self.name]

    def _java(self) -> list[str]:
        jars = self.work / "jars"
        stamp = self.work / "fetched.xml"
        if not (stamp.exists() and stamp.read_text() == (self.work / "pom.xml").read_text()):
            self.run("mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
            shutil.copy(self.work / "pom.xml", stamp)
        self.run("javac", "-Xlint:all", "-Werror", "-d", "classes", "Fenced.java", "Holder.java")
        return ["java", "-cp", f"classes{os.pathsep}jars/*", "Holder"]

    def _node(self) -> list[str]:
        stamp = self.work / "node_modules/.fetched.json"
        if not (stamp.exists() and stamp.read_text() == (self.work / "package-lock.json").read_text()):
            self.run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
            shutil.copy(self.work / "package-lock.json", stamp)
        return ["node", "holder.mjs"]

    def _go(self) -> list[str]:
        go = ROOT / "client/go"
        for module, folder in {"": go, "/pgxguard": go / "pgxguard"}.items():
            self.run("go", "mod", "edit", f"-replace=ringfence.io/client/go{module}={folder}")
        unformatted = self.run("gofmt", "-l", self.file)
        assert not unformatted, f"gofmt would change the recipe for {self.name}"
        self.run("go", "build", "-mod=readonly", "-o", "holder", ".")
        return ["./holder"]

    def _rust(self) -> list[str]:
        self.run("rustfmt", "--check", "--edition=2024", "holder.rs")
        # A user has none of the flags of this workspace.
        self.run("cargo", "build", "--quiet", "--locked", "--target-dir", "target", RUSTFLAGS="")
        return ["target/debug/holder"]

    def run(self, *command: str, **more: str) -> str:
        environment = dict(os.environ, PATH=PATH, **more)
        done = subprocess.run(command, cwd=self.work, env=environment, capture_output=True, text=True, timeout=BUILT)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout


def copy(to: pathlib.Path, text: str) -> None:
    """Writes what has changed only: compilers look at the time of a file."""
    if not to.exists() or to.read_text() != text:
        to.write_text(text)


IN_POSTGRES = [
    Recipe("psycopg", "python", "python", "recipe.py"),
    Recipe("JDBC", "java", "java", "Fenced.java", "javac", "mvn"),
    Recipe("pgx", "go", "go", "recipe.go", "go"),
    Recipe("node-postgres", "js", "node", "recipe.mjs", "node", "npm"),
    Recipe("sqlx", "rust", "rust", "recipe.rs", "cargo"),
]
IN_REDIS = Recipe("redis-py", "python", "python", "recipe.py")
IN_S3 = Recipe("boto3", "python", "python", "recipe.py")
ALL = [*IN_POSTGRES, IN_REDIS, IN_S3]


def build(recipes: list[Recipe]) -> dict[str, Future[list[str]]]:
    """Builds them beside each other: some fetch while others compile."""
    pool = ThreadPoolExecutor(len(ALL))
    built = {recipe.name: pool.submit(recipe.command) for recipe in recipes}
    pool.shutdown(wait=False)
    return built


class Holder:
    """A running one. To stop it and start another is the restart of a client."""

    def __init__(self, recipe: Recipe, command: list[str], store: str) -> None:
        environment = dict(os.environ, PATH=PATH)
        self.name = recipe.name
        self.process = subprocess.Popen(
            [*command, store],
            cwd=recipe.work,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def ask(self, *words: object) -> str:
        """Sends a line, and waits for the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer, f"the holder of {self.name} ended at {words}"
        return answer

    def stop(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.communicate()


def wait_until(done: object, what: str) -> None:
    """Until `done()` is true, for a minute at most."""
    deadline = time.monotonic() + 60
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
