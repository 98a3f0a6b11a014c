package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
)

func TestConfigNamesTheFieldThatIsWrong(t *testing.T) {
	for want, cfg := range map[string]client.Config{
		"Endpoints": {Timeout: 1, NoLeader: 1},
		"endpoint":  {Endpoints: []string{"n1"}, Timeout: 1, NoLeader: 1},
		"As":        {Endpoints: []string{"n1:1"}, As: "W 1", Timeout: 1, NoLeader: 1},
		"Timeout":   {Endpoints: []string{"n1:1"}, Timeout: -1, NoLeader: 1},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s named", cfg, err, want)
		}
	}
	if err := client.DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
}

func TestEveryCodeHasASentinel(t *testing.T) {
	all := []error{
		client.ErrBadRequest, client.ErrBadKey, client.ErrBadPath, client.ErrBadEncoding, client.ErrUndeclaredNamespace,
		client.ErrNamespaceOverlap, client.ErrWrongMode, client.ErrWrongState, client.ErrForbidden, client.ErrNotFound,
		client.ErrExists, client.ErrStaleLease, client.ErrLeaseExpired, client.ErrNoLease, client.ErrNotHolder,
		client.ErrRateLimited, client.ErrStopping, client.ErrTooLarge, client.ErrCompacted, client.ErrExpiredRequest,
		client.ErrRequestIDReused, client.ErrLoopEnded, client.ErrSlowReader, client.ErrReset, client.ErrUnauthenticated,
		client.ErrNotActive, client.ErrUnavailable, client.ErrReadTimeout, client.ErrInternal, client.ErrNotInitialized,
		client.ErrLimitInFlight, client.ErrLimitKeys, client.ErrLimitLeases, client.ErrLimitTxn, client.ErrLimitBoardBytes,
		client.ErrLimitBoards, client.ErrLimitLoops, client.ErrLimitNamespaces, client.ErrLimitRequests, client.ErrLimitCites, client.ErrLimitSchema,
	}
	for n := range boardpb.Code_name {
		code := boardpb.Code(n)
		if code == boardpb.Code_CODE_UNSPECIFIED {
			continue
		}
		err := fmt.Errorf("wrapped: %w", &client.Error{Result: &boardpb.Result{Code: code}})
		matches := 0
		for _, sentinel := range all {
			if errors.Is(err, sentinel) {
				matches++
			}
		}
		if matches != 1 || client.CodeOf(err) != code {
			t.Errorf("%v is matched by %d sentinels, want 1", code, matches)
		}
	}
}
