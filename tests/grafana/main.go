// Reads dashboards as Grafana does, by the types that Grafana's own SDK makes of its schema, and says what in them it has
// no place for: unknown fields, missing ones, values of another type, in panels' options as well.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		for _, fault := range faults(path) {
			fmt.Printf("%s: %s\n", path, fault)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// faults says what is wrong with the dashboard in a file.
func faults(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	var read dashboard.Dashboard
	for _, err := range []error{read.UnmarshalJSONStrict(raw), read.Validate()} {
		// The SDK gives a list of errors that may have none in it.
		if err != nil && err.Error() != "" {
			return []string{err.Error()}
		}
	}
	return unknownPanels(raw)
}

// unknownPanels names panels of a type that Grafana has no schema of: it would show an error in their place.
func unknownPanels(raw []byte) []string {
	var shown struct {
		Panels []struct {
			Type, Title string
		}
	}
	if err := json.Unmarshal(raw, &shown); err != nil {
		return []string{err.Error()}
	}
	var unknown []string
	for _, panel := range shown.Panels {
		if panel.Type == "row" {
			continue
		}
		if _, known := cog.ConfigForPanelcfgVariant(panel.Type); !known {
			unknown = append(unknown, fmt.Sprintf("panel %q has the unknown type %q", panel.Title, panel.Type))
		}
	}
	return unknown
}
