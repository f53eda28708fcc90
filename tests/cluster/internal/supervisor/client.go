// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Call sends one command to the supervisor that listens at socket.
func Call(ctx context.Context, socket string, request Request) ([]State, error) {
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var dialer net.Dialer
	address := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket))
	connection, err := dialer.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, fmt.Errorf("supervisor at %s does not answer: %w", socket, err)
	}
	defer connection.Close()
	deadline := time.Now().Add(commandTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	connection.SetDeadline(deadline)
	if err := json.NewEncoder(connection).Encode(request); err != nil {
		return nil, err
	}
	var reply Reply
	if err := json.NewDecoder(connection).Decode(&reply); err != nil {
		return nil, fmt.Errorf("supervisor at %s: %w", socket, err)
	}
	if reply.Error != "" {
		return reply.Components, errors.New(reply.Error)
	}
	return reply.Components, nil
}
