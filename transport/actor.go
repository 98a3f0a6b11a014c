package transport

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

const (
	// AsHeader is the metadata by which a caller states its name under --auth off.
	AsHeader = "raftboard-as"
	// ClientHeader is the metadata by which a client program names itself and its version.
	ClientHeader = "x-raftboard-client"
)

// resolveActor is the one function through which an actor enters the system: it turns
// the credential of a call into who the call is from. With auth "off" the credential is
// the name the caller states, and every role is granted (SPEC F-10). It answers
// unauthenticated without a name and bad_request for one outside the grammar.
func resolveActor(ctx context.Context, auth string) (*boardpb.Actor, *boardpb.Result) {
	if auth != AuthOff {
		// Validate refuses to start such a server; answering here keeps the gate shut anyway.
		return nil, refuse(boardpb.Code_CODE_UNAUTHENTICATED, "this server knows no way to check credentials",
			"start the server with --auth off")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	names := md.Get(AsHeader)
	switch {
	case len(names) == 0:
		return nil, refuse(boardpb.Code_CODE_UNAUTHENTICATED,
			"the call states no name, and with --auth off the name is the credential",
			"send the metadata raftboard-as (on the command line: --as NAME)")
	case len(names) > 1:
		return nil, refuse(boardpb.Code_CODE_BAD_REQUEST, "the call states more than one name",
			"send the metadata raftboard-as once")
	}
	if why := state.CheckName(names[0]); why != "" {
		r := refuse(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("the stated name %q: %s", clip(names[0], 64), why),
			"a name matches ^[a-z][a-z0-9_-]{0,47}$ and is not reserved")
		r.Field = AsHeader
		return nil, r
	}
	return &boardpb.Actor{Principal: names[0], Roles: everyRole()}, nil
}

// everyRole is what --auth off grants: ownership checks still refuse, role checks never do.
func everyRole() []boardpb.Role {
	return []boardpb.Role{
		boardpb.Role_ROLE_WORKER, boardpb.Role_ROLE_ORCHESTRATOR, boardpb.Role_ROLE_SUPERVISOR,
		boardpb.Role_ROLE_OPERATOR, boardpb.Role_ROLE_DIGESTER, boardpb.Role_ROLE_OBSERVER,
	}
}

// clip shortens what a stranger sent before it is shown in a message.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
