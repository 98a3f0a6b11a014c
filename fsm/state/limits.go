package state

// Numbers that change a result are constants here or settings in the log (DESIGN 10);
// limits of admission are flags at the edge (transport/limits.go). Every node must use
// the same ones: to change one is to change the feature level.
const (
	Format = 1 // of batches and snapshots

	MaxKeySegments         = 8
	MaxSegmentBytes        = 64
	MaxKeyBytes            = 256
	MaxDepth               = 64       // of a JSON value
	DefaultValueBytes      = 64 << 10 // bytes of a value, a setting
	MaxValueBytes          = 1 << 20
	DefaultBoardBytes      = 64 << 20 // bytes of live state of a board, a setting
	MaxBoardBytes          = 1 << 30
	DefaultHistoryVersions = 100 // versions kept of a set-like key, a setting
	MaxHistoryVersions     = 10_000
	MaxText                = 512 // bytes of a source, a reason, a purpose
	MaxSummary             = 200 // characters of a summary
	MaxOpaque              = 128 // bytes of a call id, a label
	MaxNonce               = 128
	MaxIdemKey             = 64
	MaxPrincipal           = 48
	MaxTxn                 = 64   // guards, and operations
	MaxCites               = 64   // refs of one write
	MaxReceipts            = 1024 // of one command
	MaxReaders             = 32   // of one record
	MaxReadPairs           = 4096 // of reader and author, counted one by one
	MaxNamespaces          = 128
	MaxBoards              = 256
	MaxNodeText            = 512 // bytes of an id, a name, an address, a version of a node
	MaxNodes               = 64  // live and removed ones that are remembered

	InFlight       = 256 // seqs of one loop above its floor
	MaxKept        = 512 // bytes of a remembered result
	MaxLeases      = 1024
	MaxLoops       = 100_000 // of a board, with those ended within the hour
	MaxPrevious    = 8
	MaxPartialRefs = 16
	MaxUntold      = 64
	ConflictNames  = 8

	IdemPerPrincipal = 10_000
	IdemPerBoard     = 100_000
	IdemKeptMs       = 3_600_000
	EndedKeptMs      = 3_600_000

	DefaultLoopTTLMs = 30_000
	MaxLoopTTLMs     = 86_400_000
	DefaultLeaseMs   = 300_000
	MaxLeaseMs       = 86_400_000
	DefaultGraceMs   = 10_000
	MaxGraceMs       = 60_000 // more would not count: elections delay one expiry by this at most
	GraceCapMs       = 60_000

	ExpiriesPerStep = 256
	ClaimScan       = 1024
	NotesPerSecond  = 10
	PhaseVersions   = 100       // of a phase's data that are kept, for three-way merges
	MaxPhases       = 1024      // of a board
	MaxPhaseList    = 64        // phases of one define; dependencies, expected keys, inputs of one phase
	MaxPhaseDeletes = 256       // keys that one write deletes
	DefaultPhaseMs  = 1_800_000 // lock of a phase
	LeaseBytes      = 256       // counted for a lease record
	LeaseStates     = 100       // of a lease record that are kept, with the one that is now
	ResultsReserve  = 8         // results of finished items may fill this fraction above the cap
	MaxTxnValues    = 1 << 20   // bytes of values in the answer to a txn
	CompactPerWrite = 1024      // old versions one write may push out of a full board

	MaxChanges     = 100_000
	MaxNotes       = 20_000
	MaxEventAgeMs  = 7 * 86_400_000
	MaxTombstones  = 100_000
	MaxLeaderships = 100
	DigestsKept    = 1024

	entryOverhead = 128 // bytes counted for a version beside its texts
	leaseOverhead = LeaseBytes
	phaseOverhead = 512 // bytes counted for a phase beside its data
	pastOverhead  = 128 // bytes counted for an earlier state of a lease, which shares its texts
)
