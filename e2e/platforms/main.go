// Says which manifest of an index the releases of containerd pull on a Windows host: one line of JSON for each line of its input.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"sort"

	specs "github.com/opencontainers/image-spec/specs-go/v1"
	v1_7_18 "winpool.dev/containerd-1.7.18/platforms"
	v0_2_1 "winpool.dev/platforms-0.2.1"
	rc0 "winpool.dev/platforms-1.0.0-rc.0"
	rc1 "winpool.dev/platforms-1.0.0-rc.1"
	rc2 "winpool.dev/platforms-1.0.0-rc.2"
	rc4 "winpool.dev/platforms-1.0.0-rc.4"
	rc5 "winpool.dev/platforms-1.0.0-rc.5"
)

// The methods of containerd's MatchComparer.
type comparer interface {
	Match(specs.Platform) bool
	Less(specs.Platform, specs.Platform) bool
}

// What `Default()` of each version returns on a host: with `host` in place of what Windows says about itself.
var rules = map[string]func(host specs.Platform) comparer{
	"1.7.18":     func(host specs.Platform) comparer { return v1_7_18.Only(host) },
	"0.2.1":      func(host specs.Platform) comparer { return v0_2_1.Only(host) },
	"1.0.0-rc.0": func(host specs.Platform) comparer { return rc0.Only(host) },
	"1.0.0-rc.1": func(host specs.Platform) comparer { return rc1.Only(host) },
	"1.0.0-rc.2": func(host specs.Platform) comparer { return rc2.NewMatcher(host).(comparer) },
	"1.0.0-rc.4": func(host specs.Platform) comparer { return rc4.NewMatcher(host).(comparer) },
	"1.0.0-rc.5": func(host specs.Platform) comparer { return rc5.NewMatcher(host).(comparer) },
}

type question struct {
	Version string
	Host    specs.Platform
	// An entry without a platform is null.
	Manifests []*specs.Platform
}

// As containerd selects one manifest to pull: `FilterPlatforms`, then `LimitManifests` in core/images/handlers.go.
func (q question) selected() *int {
	rule := rules[q.Version](q.Host)
	var matching []int
	for i, platform := range q.Manifests {
		if platform == nil || rule.Match(*platform) {
			matching = append(matching, i)
		}
	}
	sort.SliceStable(matching, func(i, j int) bool {
		one, other := q.Manifests[matching[i]], q.Manifests[matching[j]]
		if one == nil || other == nil {
			return one != nil && other == nil
		}
		return rule.Less(*one, *other)
	})
	if len(matching) == 0 {
		return nil
	}
	return &matching[0]
}

func main() {
	input, output := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for input.More() {
		var q question
		if err := input.Decode(&q); err != nil {
			log.Fatal(err)
		}
		if err := output.Encode(q.selected()); err != nil {
			log.Fatal(err)
		}
	}
}
