package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-lb/starling/node/api"
)

// newKeys is the command that changes the keys of gossip on a running cluster.
func newKeys() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Rotate the keys of gossip, on all nodes at once",
		Long: "Keys changes the keys that gossip is encrypted with, on every live node, without a\n" +
			"restart: install a new key, use it, remove the old one; then write it into the\n" +
			"configurations. A key is read from a file, or with - from standard input, and never\n" +
			"taken from the command line, which the list of processes shows to all; keys are\n" +
			"shown by marks only.",
	}
	c.AddCommand(list("list", "Show which keys each node has; the first encrypts", at("keys"), cobra.NoArgs, showKeys),
		keyOrder("install", "Have every node decrypt with a key too"),
		keyOrder("use", "Have every node encrypt with a key that all have"),
		keyOrder("remove", "Have every node forget a key that nobody encrypts with"))
	return c
}

func showKeys(w io.Writer, l api.Keys) {
	fmt.Fprintln(w, "NODE\tKEYS\tERROR")
	for _, n := range l.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, strings.Join(n.Keys, " "), n.Error)
	}
}

const maxKeyInput = 4 << 10 // bytes

func keyOrder(what, short string) *cobra.Command {
	var a admin
	c := asking(&cobra.Command{Use: what + " FILE|-", Short: short, Args: cobra.ExactArgs(1)}, &a)
	c.RunE = func(c *cobra.Command, args []string) error {
		key, err := readKey(c.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		node, err := a.client()
		if err != nil {
			return err
		}
		if err := node.Post(c.Context(), api.KeyOrder{Key: key}, "keys", what); err != nil {
			return err
		}
		return a.say(c, what+": done on every node")
	}
	return c
}

// readKey reads a key from a file, or from standard input where that is "-". What
// names no file may be a key itself, so an error does not repeat it.
func readKey(stdin io.Reader, name string) (string, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			var at *os.PathError
			errors.As(err, &at)
			return "", fmt.Errorf("the argument is no file that can be read (%v): name the file that holds the key, or write - and hand the key in on standard input; a key on the command line could be seen by all", at.Err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxKeyInput))
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func showMembers(w io.Writer, l api.Members) {
	fmt.Fprintln(w, "MEMBER\tADDRESS\tZONE\tSTATE\tFOR\tVERSION\tCONFIG\tRTT\tREPORT AGE\tNOTE")
	for _, m := range l.Members {
		age, note := "-", ""
		if m.ReportAge != nil {
			age = fmt.Sprintf("%.1fs", *m.ReportAge)
		}
		switch {
		case m.Self:
			note = "answers this"
		case m.UDPLost:
			note = "UDP is lost"
		}
		since := "-"
		if !m.Since.IsZero() {
			since = strings.TrimSuffix(ago(m.Since), " ago")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1fms\t%s\t%s\n", m.Name, dash(m.Address), m.Zone, stateText(string(m.State), m.Agreed), since, m.Version, m.ConfigHash, 1000*m.RTT, age, note)
	}
}
