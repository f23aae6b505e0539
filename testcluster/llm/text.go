package llm

import "strings"

// Sixty-four words of eight bytes each, padded; a constant may be sliced where
// a list would have to be a variable.
const (
	wordBytes = 8
	words     = "" +
		"a       many    stars   starlingflock   shard   quiet   river   " +
		"every   token   follows the     same    path    home    and     " +
		"one     leader  speaks  while   others  listen  until   morning " +
		"small   birds   turn    togetherin      silence none    is      " +
		"lost    when    wind    changes they    agree   without asking  " +
		"each    keeps   its     nearest friend  wholly  over    dark    " +
		"fields  bridges hold    load    evenly  nobody  waits   long    " +
		"caf\u00e9   open    late    answers arrive  in      order   always  "
)

// mix is the finaliser of SplitMix64: neighbouring numbers come out unrelated.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Token is the text of token number k, from 0, of every answer with that seed.
func Token(seed uint64, k int) string {
	h := mix(seed ^ mix(uint64(k)))
	at := int(h%(uint64(len(words))/wordBytes)) * wordBytes
	word := strings.TrimRight(words[at:at+wordBytes], " ")
	if h>>32%12 == 0 {
		word += "."
	}
	if k == 0 {
		return word
	}
	return " " + word
}

// Text is the first n tokens in one piece: what a judge expects of an answer
// whose request brought this seed.
func Text(seed uint64, n int) string {
	var b strings.Builder
	for k := range n {
		b.WriteString(Token(seed, k))
	}
	return b.String()
}

// AnswerSeed is the seed of the answer to a chat of one message with that text,
// which needs no escapes in JSON, where neither request nor Options.Seed bring one.
// So the answer shows whether all of the message arrived.
func AnswerSeed(text string) uint64 {
	return mix(mix(fingerprint([]byte(`"` + text + `"`))))
}
