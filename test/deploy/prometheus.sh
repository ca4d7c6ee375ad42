#!/bin/sh
# Prints the folder with promtool and prometheus.
exec sh "$(dirname "$0")/debian.sh" prometheus promtool prometheus
