"""Downloads and builds critest and what it needs."""

import os
import re
import sys
from pathlib import Path

import images
from session.engines import crictl
from session.runtime import CACHE
from session.sources import go_build, go_module, install_packages

MODULE, VERSION = "sigs.k8s.io/cri-tools", "v1.36.0"


def prepare():
    """Downloads and builds everything that the tests need, with the network of the machine."""
    install_packages("docker-registry", "curl", "gcc", "libc6-dev", "util-linux", "iproute2", "nftables")
    images.fetch()
    crictl()
    digest = images.by_digest().digest
    program = os.environ.get("CRITEST", str(CACHE / f"critest-{VERSION}-{digest[7:19]}"))
    if not Path(program).exists() or not (CACHE / "ginkgo").exists():
        source = go_module(MODULE, VERSION, "cri-tools")
        # critest contains the digest of an image that cannot be rebuilt. Replace it by the digest of images.by_digest().
        constants = source / "pkg/validate/consts.go"
        text, count = re.subn(r"(/?test-image-digest@)sha256:[0-9a-f]{64}", rf"\g<1>{digest}", constants.read_text(), count=1)
        if count != 1:
            sys.exit(f"critest: {constants} does not contain the digest of test-image-digest anymore; update tests/critest/programs.py")
        constants.write_text(text)
        go_build(source, program, "-ldflags", f"-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version={VERSION}", "./cmd/critest", command=("test", "-c"))
        go_build(source, CACHE / "ginkgo", "-ldflags", "-s -w", "github.com/onsi/ginkgo/v2/ginkgo")
    return {"critest": program, "ginkgo": str(CACHE / "ginkgo")}
