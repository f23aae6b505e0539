package admin

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/node/api"
)

var update = flag.Bool("update", false, "write what the tests expect anew")

const documentFile = "../../docs/reference/openapi.json"

// The file is what the node serves, laid out for people. -update writes it.
func TestOpenAPIFile(t *testing.T) {
	got := ask(t, newRig().start(t), "GET /v1/openapi.json")
	var doc object
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || doc["openapi"] != "3.1.0" {
		t.Fatalf("status %d: %v", got.StatusCode, err)
	}
	want, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(documentFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(documentFile); err != nil || string(text) != string(want) {
		t.Errorf("%s is not what is served (%v): go test ./node/admin -run TestOpenAPIFile -update", documentFile, err)
	}
}

// Every route is told, every reference leads somewhere, and no operation has
// another's name.
func TestOpenAPIIsWhole(t *testing.T) {
	s := decide(t, Config{Address: "127.0.0.1:0"})
	doc := served(t, document(s.shows(), s.changes()))
	ids := map[string]bool{}
	for _, r := range append(s.shows(), s.changes()...) {
		op, ok := dig(doc, "paths", r.path, strings.ToLower(r.method)).(object)
		if !ok || r.says == "" || op["summary"] != r.says {
			t.Errorf("%s %s is not told", r.method, r.path)
			continue
		}
		if id := op["operationId"].(string); ids[id] {
			t.Errorf("two operations are %s", id)
		} else {
			ids[id] = true
		}
	}
	for _, ref := range references(doc) {
		if dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	}
}

// What handlers answer is what the document says, with every field set and with
// none; bodies that it describes are taken, and others refused.
func TestHandlersAreAsTold(t *testing.T) {
	r := newRig()
	r.node.feed = fakeFeed{make(chan api.Event), make(chan struct{})}
	s := r.start(t)
	doc := served(t, document(s.shows(), s.changes()))
	v := validator{doc: doc}
	for _, sparse := range []bool{false, true} {
		for _, at := range []any{&r.node.status, &r.node.backends, &r.node.streams, &r.node.pools, &r.node.members, &r.node.shards} {
			fill(reflect.ValueOf(at).Elem(), sparse)
		}
		for _, route := range append(s.shows(), s.changes()...) {
			if _, text := route.gives.(string); text || route.mime == eventStream {
				continue
			}
			op := dig(doc, "paths", route.path, strings.ToLower(route.method))
			answer := v.try(t, s, route, op)
			schema := dig(op, "responses", "200", "content", "application/json", "schema")
			if err := v.check(schema, answer, "answer"); err != nil {
				t.Errorf("%s %s, sparse %v: %v", route.method, route.path, sparse, err)
			}
		}
	}
}

// try sends what the document describes, and one that it does not.
func (v validator) try(t *testing.T, s *Server, r route, op any) (answer any) {
	t.Helper()
	path := strings.NewReplacer("{pool}", "llm", "{id}", "b1", "{key}", "k").Replace(r.path)
	body, wrong := "", `{"nobody_knows_this":1}`
	if r.takes != nil {
		text, err := json.Marshal(r.takes)
		if err != nil {
			t.Fatal(err)
		}
		body = string(text)
		var sent any
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		if err := v.check(dig(op, "requestBody", "content", "application/json", "schema"), sent, "body"); err != nil {
			t.Errorf("%s %s: %v", r.method, r.path, err)
		}
	}
	status, text := post(t, s, r.method, path, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		t.Errorf("%s %s %s: status %d, %v: %s", r.method, path, body, status, err, text)
	}
	if r.method == "GET" {
		return answer
	}
	status, text = post(t, s, r.method, path, wrong)
	var refused any
	if err := json.Unmarshal([]byte(text), &refused); err != nil || status != 400 {
		t.Errorf("%s %s %s: status %d, %v, want 400", r.method, path, wrong, status, err)
	}
	if err := v.check(object{"$ref": "#/components/schemas/Error"}, refused, "refusal"); err != nil {
		t.Error(err)
	}
	return answer
}

func post(t *testing.T, s *Server, method, path, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// The judge of the others is judged: what is not as told it refuses.
func TestValidator(t *testing.T) {
	s := decide(t, Config{Address: "127.0.0.1:0"})
	v := validator{doc: served(t, document(s.shows(), s.changes()))}
	for schema, bad := range map[string][]string{
		"Streams":   {`{}`, `{"in_flight":1,"waiting":"2","ended":{}}`, `{"in_flight":1,"waiting":2,"ended":{"done":1.5}}`, `{"in_flight":1,"waiting":2,"ended":{},"more":1}`, `[]`, `null`},
		"ShardList": {`{"shards":null}`, `{"shards":[{}]}`},
		"Drain":     {`{"left":1,"phase":"over"}`, `{"left":1,"deadline":"soon"}`, `{"left":null}`},
		"Session":   {`{"shard":1,"backend":"b","epoch":1,"provisional":false,"last_use":7,"held":false}`},
	} {
		for _, text := range bad {
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			if err := v.check(object{"$ref": "#/components/schemas/" + schema}, value, ""); err == nil {
				t.Errorf("%s is taken for %s", text, schema)
			}
		}
	}
	good := any(object{"in_flight": 1.0, "waiting": 0.0, "ended": object{"done": 3.0}})
	if err := v.check(object{"$ref": "#/components/schemas/Streams"}, good, ""); err != nil {
		t.Error(err)
	}
}

// validator holds values against schemas of the document; it knows no more of JSON
// Schema than that uses.
type validator struct{ doc object }

func (v validator) check(schema, value any, at string) error {
	form, ok := schema.(object)
	if !ok {
		return fmt.Errorf("%s: there is no schema", at)
	}
	if ref, ok := form["$ref"].(string); ok {
		return v.check(dig(v.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), value, at)
	}
	if either, ok := form["anyOf"].([]any); ok {
		for _, one := range either {
			if v.check(one, value, at) == nil {
				return nil
			}
		}
		return fmt.Errorf("%s: %v is none of those that may be", at, value)
	}
	if !typed(form["type"], value) {
		return fmt.Errorf("%s: %v is no %v", at, value, form["type"])
	}
	if words, ok := form["enum"].([]any); ok && !slices.Contains(words, value) {
		return fmt.Errorf("%s: %v is none of %v", at, value, words)
	}
	if form["format"] == "date-time" {
		if _, err := time.Parse(time.RFC3339, value.(string)); err != nil {
			return fmt.Errorf("%s: %v", at, err)
		}
	}
	switch value := value.(type) {
	case []any:
		for i, one := range value {
			if err := v.check(form["items"], one, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case object:
		return v.checkObject(form, value, at)
	}
	return nil
}

// checkObject is stricter than the schema: a field that is not told is a fault.
func (v validator) checkObject(form, value object, at string) error {
	required, _ := form["required"].([]any)
	for _, name := range required {
		if _, ok := value[name.(string)]; !ok {
			return fmt.Errorf("%s: %v is missing", at, name)
		}
	}
	if form["type"] == nil {
		return nil
	}
	for name, one := range value {
		schema := dig(form, "properties", name)
		if schema == nil {
			schema = form["additionalProperties"]
		}
		if err := v.check(schema, one, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func typed(want, value any) bool {
	number, isNumber := value.(float64)
	switch want {
	case nil:
		return true
	case "integer":
		return isNumber && number == math.Trunc(number)
	case "number":
		return isNumber
	}
	kind := map[reflect.Kind]any{reflect.String: "string", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Map: "object", reflect.Invalid: "null"}
	return kind[reflect.ValueOf(value).Kind()] == want
}

// served is the document as it comes over the wire.
func served(t *testing.T, doc object) (out object) {
	t.Helper()
	text, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func dig(at any, keys ...string) any {
	for _, k := range keys {
		o, _ := at.(object)
		at = o[k]
	}
	return at
}

func references(at any) (all []string) {
	switch at := at.(type) {
	case object:
		for k, v := range at {
			if ref, ok := v.(string); ok && k == "$ref" {
				all = append(all, ref)
			}
			all = append(all, references(v)...)
		}
	case []any:
		for _, v := range at {
			all = append(all, references(v)...)
		}
	}
	return all
}

// fill sets every field to something that is not zero; sparse leaves out what may
// be left out.
func fill(v reflect.Value, sparse bool) {
	if words := enum(v.Type()); words != nil {
		v.SetString(words[0])
		return
	}
	if v.Type() == reflect.TypeOf(time.Time{}) {
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), sparse)
		}
	case reflect.Pointer:
		v.SetZero()
		if !sparse && v.Type() != reflect.TypeFor[*api.Status]() { // a status of all nodes holds those of each
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), sparse)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 1))
		if !sparse {
			v.Set(v.Slice(0, 1))
			fill(v.Index(0), sparse)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if !sparse {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, sparse)
			fill(value, sparse)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	default:
		panic("BUG: cannot fill a " + v.Type().String())
	}
}
