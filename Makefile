# Everything a person or CI runs. Needs Go and make; `race` also a C compiler.

GO       ?= go
FUZZTIME ?= 10s

.DEFAULT_GOAL := help
.PHONY: netns model browser chaos sessions
.PHONY: membership figures
.PHONY: alerts
.PHONY: help build demo test race soak clients fuzz bench sim replay stall hostile ordinary upgrades release audit lint format vet staticcheck ci clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## ./bin/starling, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/starling ./cmd/starling

demo: build ## build, then watch answers stream through a local starling; ctrl-C ends it
	./bin/starling dev --load

test: ## all tests, a few minutes
	$(GO) test -timeout 8m $(TESTFLAGS) ./...

race: ## all tests under the race detector; gossip's largest clusters are built without it only
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 12m ./...

soak: ## 10,000 streams of all kinds through one node, up to 10 minutes
	$(GO) test -count=1 -timeout 12m -v -run '^TestStorm$$' ./testcluster -args -storm.full

clients: ## openai, ws, eventsource (npm) and curl through starling; needs node 18, npm, curl
	cd testcluster/clients && npm ci --no-audit --no-fund
	$(GO) run ./testcluster/clients

fuzz: ## every fuzz function there is, FUZZTIME (10s) each
	@GO=$(GO) bash .ci/fuzz.sh $(FUZZTIME)

bench: build ## CPU per request beside nginx and HAProxy, Linux; see BENCHFLAGS=-h
	$(GO) run ./testcluster/bench $(BENCHFLAGS)
	$(GO) run ./testcluster/bench/gossip $(GOSSIPFLAGS)

figures: ## what sessions cost beside their limits, half a minute on a quiet machine; see FIGUREFLAGS=-h
	$(GO) run ./testcluster/figures $(FIGUREFLAGS)

sim: ## placement in virtual time beside an all-knowing oracle; writes docs/balance.md; see SIMFLAGS=-h
	$(GO) run ./testcluster/sim/show $(SIMFLAGS)

replay: ## a real node and engines beside the oracle of the same requests, a quarter of an hour
	$(GO) test -count=1 -timeout 30m -v -run '^TestReplay$$' ./testcluster -args -replay.full

stall: ## one of eleven backends stalls for 30 s, under load
	$(GO) test -count=1 -timeout 5m -v -run '^TestStall$$' ./testcluster -args -stall.full

hostile: ## slowloris, floods, silent and slow clients, each beside honest ones, a quarter of an hour
	$(GO) test -count=1 -timeout 30m -v ./testcluster/hostile -args -hostile.full

ordinary: ## 1,000 streams of 30 s through 20 reloads and a drain of 40 s
	$(GO) test -count=1 -timeout 15m -v -run '^TestOrdinaryDay$$' ./cmd/starling -args -ordinary.full

upgrades: ## ten upgrades in a row under 400 streams and requests, every node of a cluster twice, and signals at 40 moments of one
	$(GO) test -count=1 -timeout 15m -v -run '^TestUpgrade|^TestSignalsDuringAnUpgrade' ./cmd/starling -args -upgrade.full

release: ## ./dist: static binaries for Linux and macOS, what each is made of (SBOM), checksums; RELEASEFLAGS=-h
	$(GO) run ./cmd/release $(RELEASEFLAGS)

audit: ## known faults of the modules that the binary uses; asks vuln.go.dev
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

membership: ## real nodes join, leave, die and lose disks by seed, most of them at once too, and are recovered, and grow to 5 with 64 shards; a quarter of an hour; MEMBERSHIPFLAGS='-membership.seed=7 -membership.seeds=3'
	$(GO) test -count=1 -timeout 60m -v ./testcluster/membership -args -membership.full -membership.seeds=5 $(MEMBERSHIPFLAGS)

model: ## the sessions' protocol, and each rule taken out, by spin; see docs/model; MODELFLAGS=-full for larger bounds
	bash docs/model/check $(MODELFLAGS)

alerts: ## each alert of docs/operations fires and clears, on real metrics of staged trouble; needs promtool
	$(GO) run ./testcluster/alerts $(ALERTFLAGS)

chaos: build ## every scenario of starling chaos once, 20 minutes; CHAOSFLAGS="--duration 6s --beside 3" for a short form
	./bin/starling chaos --scenario all --report bin/chaos.html $(CHAOSFLAGS)

browser: ## the dashboard in headless Chromium; BROWSERFLAGS="-shots DIR" keeps pictures
	$(GO) run ./testcluster/browser $(BROWSERFLAGS)

mutants: ## bugs are planted, one at a time, and the judge of chaos runs must find each; three quarters of an hour; MUTANTFLAGS="-run NAME"
	@GO=$(GO) $(GO) run ./testcluster/chaos/mutants $(MUTANTFLAGS)

sessions: ## one backend at a time, for minutes: real nodes stopped, killed and cut off, and 1,500 minutes in virtual time; backends added beneath sessions
	$(GO) test -count=1 -timeout 20m -run '^TestPromisesUnderFaults$$' ./shards -args -sessions.seeds=1500
	$(GO) test -count=1 -timeout 40m -v -parallel 1 ./testcluster/promise -args -promise.full
	$(GO) test -count=1 -timeout 40m -v -parallel 1 ./testcluster/moving -args -moving.full

netns: build ## real loss between real nodes in namespaces; needs root or user namespaces, iptables
	bash .ci/netns.sh ./bin/starling $(NETNSFLAGS)
	./bin/starling chaos --scenario loss --level namespaces --duration 12s

lint: format vet staticcheck ## format, vet, staticcheck

format:
	@out=$$($$($(GO) env GOROOT)/bin/gofmt -l -s .) || exit 1; \
	if [ -n "$$out" ]; then echo "not formatted, run gofmt -s -w on:"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) tool staticcheck ./...

ci: ## all that CI runs, with a table of stages and times
	@GO=$(GO) bash .ci/stages.sh

clean: ## remove what the other targets leave
	rm -rf bin
