"""Certificates and signatures by the program openssl."""

import os
import subprocess

from lib.process import Failed

TIMEOUT_S = 60


def run(*arguments, data=None):
    """Runs openssl with these arguments and this input, and returns its output."""
    command = ["openssl", *arguments]
    done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise Failed(f"openssl {arguments[0]} failed:\n{done.stderr.decode()[-1000:]}")
    return done.stdout


def make_certificate(folder):
    """Writes `cert.pem` and `key.pem`: a certificate for 127.0.0.1 that signs itself."""
    run(
        *["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
        *["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        *["-keyout", os.path.join(folder, "key.pem"), "-out", os.path.join(folder, "cert.pem")],
    )
