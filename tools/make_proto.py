"""How is the code in src/dragoman/node/proto made? From the .proto files beside it, by grpcio-tools.

Makes messages and their type stubs only: services are served and called by the tables of `node/rpc.py`, which bind
us to no version of grpcio. Run by `make proto`; the result is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).parent.parent / "src"
FOLDER = SOURCE / "dragoman" / "node" / "proto"


def main() -> int:
    """Generate; 0 when every file was made."""
    files = sorted(str(path.relative_to(SOURCE)) for path in FOLDER.glob("*.proto"))
    options = [f"--proto_path={SOURCE}", f"--python_out={SOURCE}", f"--pyi_out={SOURCE}"]
    status: int = protoc.main(["protoc", *options, *(str(SOURCE / file) for file in files)])
    return status


if __name__ == "__main__":
    sys.exit(main())
