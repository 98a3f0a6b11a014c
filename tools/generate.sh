#!/usr/bin/env bash
# Generates Go code from the .proto files, and stamps what it was made from.
#   tools/generate.sh           generate if the stamp differs
#   tools/generate.sh --check   the same, and fail if the committed code was not fresh
# The generators are built from tools/go.mod, which takes minutes on a cold machine; while
# the stamp holds, nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=tools/generate.stamp

made_from() {
  sha256sum fsm/pb/*.proto transport/pb/*.proto buf.yaml buf.gen.yaml
  sha256sum fsm/pb/*.pb.go transport/pb/*.pb.go
  grep -hE 'bufbuild/buf |cmd/protoc-gen-go-grpc ' tools/go.mod | tr -d '\t' | sed 's| // indirect||'
  grep -hE 'google.golang.org/protobuf ' go.mod | tr -d '\t'
}

if made_from | cmp -s - "$stamp"; then
  echo "generated code is fresh"
  exit 0
fi
echo "the stamp differs: generating"
go tool -modfile=tools/go.mod buf generate
made_from > "$stamp"
if [ "${1:-}" = --check ] && ! git diff --quiet -- fsm/pb transport/pb "$stamp"; then
  echo "the committed code was not made from these .proto files: run tools/generate.sh and commit"
  git --no-pager diff --stat -- fsm/pb transport/pb "$stamp"
  exit 1
fi
