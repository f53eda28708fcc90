// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DifferentNodes are the nodes of the quickstart, each with another GPU model.
func DifferentNodes() ([]GPUs, error) {
	path := filepath.Join(Root, "deploy/simulated/nodes.txt")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var nodes []GPUs
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: %q is not a profile and a number", path, line)
		}
		count, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		nodes = append(nodes, GPUs{Profile: fields[0], Count: count})
	}
	return nodes, nil
}
