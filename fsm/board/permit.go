package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// SystemActor is the author of what nodes propose by themselves. Its name is reserved,
// so no credential carries it.
func SystemActor() *boardpb.Actor { return &boardpb.Actor{Principal: "system"} }

// permit decides by role; it is the one place that does. What belongs to whom is decided
// where the record is known. The answer is the role that is missing, or "".
func permit(c *boardpb.Command) (missing string) {
	a := c.Actor
	switch c.Op.(type) {
	case *boardpb.Command_Lead, *boardpb.Command_Tick, *boardpb.Command_Level,
		*boardpb.Command_NodePut, *boardpb.Command_NodeDrop, *boardpb.Command_Receipts:
		if a.GetPrincipal() != SystemActor().Principal {
			return "system (nodes only)"
		}
		return ""
	case *boardpb.Command_ClusterSet, *boardpb.Command_BoardCreate, *boardpb.Command_BoardSet,
		*boardpb.Command_BoardCompact, *boardpb.Command_BoardDelete, *boardpb.Command_BoardClose, *boardpb.Command_BoardFork,
		*boardpb.Command_ForceRelease:
		if !state.HasRole(a, boardpb.Role_ROLE_OPERATOR) {
			return "operator"
		}
		return ""
	case *boardpb.Command_PhaseDefine:
		if !orchestrates(a) {
			return "orchestrator"
		}
		return ""
	case *boardpb.Command_PhaseSettle:
		if !state.HasRole(a, boardpb.Role_ROLE_SUPERVISOR) {
			return "supervisor"
		}
		return ""
	case *boardpb.Command_Reopen:
		if !orchestrates(a) && !state.HasRole(a, boardpb.Role_ROLE_OPERATOR) {
			return "orchestrator"
		}
		return ""
	case *boardpb.Command_Unpark:
		if !orchestrates(a) && !state.HasRole(a, boardpb.Role_ROLE_SUPERVISOR) && !state.HasRole(a, boardpb.Role_ROLE_OPERATOR) {
			return "orchestrator"
		}
		return ""
	}
	for _, r := range a.GetRoles() {
		if r != boardpb.Role_ROLE_OBSERVER && r != boardpb.Role_ROLE_UNSPECIFIED {
			return ""
		}
	}
	return "worker"
}

func orchestrates(a *boardpb.Actor) bool { return state.HasRole(a, boardpb.Role_ROLE_ORCHESTRATOR) }

// Permit refuses a command whose author lacks the role it needs, or answers nil.
func Permit(c *boardpb.Command) *boardpb.Result {
	if missing := permit(c); missing != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Field: missing}
	}
	return nil
}

// MayAct refuses who acts for somebody else without being an operator, or answers nil. It
// comes before everything: until then nothing may count for the one who was named.
func MayAct(c *boardpb.Command) *boardpb.Result {
	if c.Actor.GetActingFor() != "" && !state.HasRole(c.Actor, boardpb.Role_ROLE_OPERATOR) {
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Field: "operator"}
	}
	return nil
}
