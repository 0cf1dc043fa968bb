//! Clients of the Redis protocol in other languages.

use std::process::Command;

use crate::programs::{REDIS, Shop, output, python_with, repository, succeed};

#[test]
#[ignore = "long: pip fetches redis-py"]
fn redis_py() {
    let shop = Shop::start(&REDIS);
    let server = &shop.server;
    let folder = tempfile::tempdir().unwrap();
    let python = python_with(folder.path(), &["redis"]).join("python");
    let command = |key: &str, keys: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(repository().join("examples/python/read_redis.py")).args(keys);
        command.env("HOTROW_REDIS_URL", format!("redis://{}", server.redis()));
        command.env("HOTROW_KEY", key);
        command
    };
    let key = &*shop.key;
    let printed = succeed(&mut command(key, &["products:1", "products:9"]));
    let expected = "products:1 {'id': 1, 'name': 'p1', 'price': 100}\nproducts:9 missing\n";
    assert_eq!(printed, expected);
    for (key, keys, error) in [
        ("hrk_wrong", "products:1", "AuthenticationError"),
        (key, "products:x", "ResponseError: bad id"),
    ] {
        let done = output(&mut command(key, &[keys]));
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && errors.contains(error), "{errors}");
    }
    // What redis-py does by itself: a pipeline, and pooled connections of RESP2.
    let script = "import redis, sys\n\
        pool = redis.Redis.from_url(sys.argv[1], password=sys.argv[2], decode_responses=True)\n\
        with pool.pipeline(transaction=False) as p:\n\
        \x20   for i in range(1, 5):\n\
        \x20       p.get(f'products:{i}').exists(f'products:{i}')\n\
        \x20   print(p.execute()[1::2])\n\
        print(pool.ping(), pool.echo('a'), pool.info()['loading'])\n";
    let mut piped = Command::new(&python);
    piped.args(["-c", script, &format!("redis://{}", server.redis()), key]);
    assert_eq!(succeed(&mut piped), "[1, 1, 1, 0]\nTrue a 0\n");
}
