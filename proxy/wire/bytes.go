package wire

// isTokenByte tells whether b may stand in a method or field name (RFC 9110
// section 5.6.2).
func isTokenByte(b byte) bool {
	const (
		low  = 1<<'!' | 1<<'#' | 1<<'$' | 1<<'%' | 1<<'&' | 1<<'\'' | 1<<'*' | 1<<'+' | 1<<'-' | 1<<'.' | (1<<10-1)<<'0'
		high = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64) | 1<<('^'-64) | 1<<('_'-64) | 1<<('`'-64) | 1<<('|'-64) | 1<<('~'-64)
	)
	if b < 64 {
		return uint64(low)>>b&1 != 0
	}
	return b < 128 && uint64(high)>>(b-64)&1 != 0
}

// isValueByte tells whether b may stand in a field value: anything but control
// bytes, blank and tab excepted (RFC 9110 section 5.5).
func isValueByte(b byte) bool { return b >= ' ' && b != 0x7f || b == '\t' }

func isToken(p []byte) bool {
	for _, b := range p {
		if !isTokenByte(b) {
			return false
		}
	}
	return len(p) > 0
}

// fold tells whether p is s in any letter case; s is lower case.
func fold[T, U ~string | ~[]byte](p T, s U) bool {
	if len(p) != len(s) {
		return false
	}
	for i := 0; i < len(p); i++ {
		b := p[i]
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != s[i] {
			return false
		}
	}
	return true
}

// lower is b in lower case.
func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

func trim(p []byte) []byte {
	for len(p) > 0 && (p[0] == ' ' || p[0] == '\t') {
		p = p[1:]
	}
	for len(p) > 0 && (p[len(p)-1] == ' ' || p[len(p)-1] == '\t') {
		p = p[:len(p)-1]
	}
	return p
}

// nextElement cuts the first element off a comma list; ok is false at its end.
// Empty elements come out empty.
func nextElement(list []byte) (element, rest []byte, ok bool) {
	if len(list) == 0 {
		return nil, nil, false
	}
	for i, b := range list {
		if b == ',' {
			return trim(list[:i]), list[i+1:], true
		}
	}
	return trim(list), nil, true
}

// has tells whether a comma list has the element, in any letter case; want is
// lower case.
func has(list []byte, want string) bool {
	for {
		element, rest, ok := nextElement(list)
		if !ok {
			return false
		}
		if fold(element, want) {
			return true
		}
		list = rest
	}
}

// ValidFieldName tells whether s may name a field.
func ValidFieldName(s string) bool { return isToken([]byte(s)) }

// MayAdd tells whether a field of that name can be put into a request, and the
// client's own taken out, without changing what the request is.
func MayAdd(name string) bool {
	return ValidFieldName(name) && kindOf([]byte(name)) == plain &&
		!fold(name, "cookie") && !fold(name, "via") && !fold(name, "authorization") && !fold(name, "content-type") && !fold(name, "content-encoding")
}
