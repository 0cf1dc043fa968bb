//! Client libraries of Redis in Go, Java and JavaScript: what they get, and what they keep.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::near_cache::{Reader, check};
use crate::programs::{REDIS, Shop, repository, succeed};

impl Shop {
    /// Checks what a program prints: answers once for each of `connections` kinds of connection,
    /// and the refusal of a wrong key. Libraries show null in words of their own.
    #[track_caller]
    fn check_answers(&self, command: &mut Command, null: &str, connections: usize) {
        command.env("HOTROW_REDIS_ADDRESS", self.server.redis().to_string());
        let printed = succeed(command.env("HOTROW_KEY", &self.key));
        let one = r#"{"id":1,"name":"p1","price":100}"#;
        let two = r#"{"id":2,"name":"p2","price":200}"#;
        let answers = format!(
            "get {one}\nmissing {null}\nmget {one} true {two}\nexists 1\n\
             wrong ERR unknown command 'SET', with args beginning with: 'products:1' 'x'\n"
        );
        let lines: Vec<&str> = printed.lines().collect();
        let (refusal, answered) = lines.split_last().expect("lines");
        // Names of commands are as the library sends them. As in Redis, a space follows each of the
        // arguments that an error repeats.
        let answered: Vec<&str> = answered.iter().map(|line| line.trim_end()).collect();
        let answered = answered.join("\n").replace("'set'", "'SET'");
        assert_eq!(answered, answers.repeat(connections).trim_end());
        assert!(refusal.starts_with("auth ") && refusal.contains("WRONGPASS"), "{refusal}");
    }
}

fn library(name: &str) -> PathBuf {
    repository().join("crates/hotrow/tests/clients/libraries").join(name)
}

fn go_program(folder: &Path) -> PathBuf {
    let program = folder.join("go_redis");
    let go = std::env::var("HOTROW_GO").unwrap_or_else(|_| "/usr/local/go/bin/go".to_owned());
    let mut build = Command::new(go);
    build.current_dir(library("go_redis")).args(["build", "-o"]).arg(&program);
    succeed(build.arg("."));
    program
}

#[test]
#[ignore = "long: needs Go, which fetches go-redis"]
fn go_redis() {
    let folder = tempfile::tempdir().unwrap();
    let program = go_program(folder.path());
    Shop::start(&REDIS).check_answers(&mut Command::new(&program), "null", 2);
    check(|server| {
        let mut command = Command::new(&program);
        command.arg("near").env("HOTROW_REDIS_ADDRESS", server.redis().to_string());
        Reader::start(&mut command)
    });
}

#[test]
#[ignore = "long: npm fetches ioredis"]
fn ioredis() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["read.js", "package.json"] {
        std::fs::copy(library("ioredis").join(file), folder.path().join(file)).unwrap();
    }
    let mut install = Command::new("npm");
    succeed(install.current_dir(folder.path()).args(["install", "--no-audit", "--no-fund"]));
    let mut command = Command::new("node");
    Shop::start(&REDIS).check_answers(command.arg(folder.path().join("read.js")), "null", 1);
}

/// Fetches Jedis and Lettuce, compiles the programs, and returns the class path.
fn java_programs(folder: &Path) -> String {
    let libraries = folder.join("libraries");
    let mut fetch = Command::new("mvn");
    fetch.current_dir(folder).args(["-q", "-B", "-f"]).arg(library("java").join("pom.xml"));
    fetch.arg("dependency:copy-dependencies");
    succeed(fetch.arg(format!("-DoutputDirectory={}", libraries.display())));
    let mut compile = Command::new("javac");
    compile.arg("-cp").arg(format!("{}/*", libraries.display())).arg("-d").arg(folder);
    let sources = ["Answers.java", "NearCache.java"].map(|name| library("java").join(name));
    succeed(compile.args(sources));
    format!("{}:{}/*", folder.display(), libraries.display())
}

#[test]
#[ignore = "long: needs a JDK and Maven, which fetches Jedis and Lettuce"]
fn jedis_and_lettuce() {
    let folder = tempfile::tempdir().unwrap();
    let class_path = java_programs(folder.path());
    let program = |class: &str, library: &str| {
        let mut command = Command::new("java");
        command.args(["-cp", &class_path, class, library]);
        command
    };
    let shop = Shop::start(&REDIS);
    for (library, connections) in [("jedis", 2), ("lettuce", 1)] {
        shop.check_answers(&mut program("Answers", library), "null", connections);
        check(|server| {
            let mut command = program("NearCache", library);
            Reader::start(command.env("HOTROW_REDIS_ADDRESS", server.redis().to_string()))
        });
    }
}
