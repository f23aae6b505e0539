package quorum

// Config says what this node keeps of the sessions' shards.
type Config struct {
	Host     bool `yaml:"host"`     // keep replicas; false: only ask those who do
	Count    int  `yaml:"count"`    // of shards; counts when the cluster is founded, and never after
	Replicas int  `yaml:"replicas"` // of each shard, where there are as many nodes
}

const (
	maxCount    = 256
	maxReplicas = 7
)

// DefaultConfig holds the contract's defaults.
func DefaultConfig() Config { return Config{Host: true, Count: 16, Replicas: 3} }

// Validate reports every fault by the key it concerns.
func (c Config) Validate(fault func(key, format string, args ...any)) {
	if c.Count < 1 || c.Count > maxCount {
		fault("count", "%d is out of range; write a number from 1 to %d", c.Count, maxCount)
	}
	if c.Replicas < 1 || c.Replicas > maxReplicas || c.Replicas%2 == 0 {
		fault("replicas", "%d is no good number of replicas; write 1, 3, 5 or 7: an even one survives no more losses than one less", c.Replicas)
	}
}
