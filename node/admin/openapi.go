package admin

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// The API as OpenAPI 3.1, made from the routes and from the types that handlers
// read and write: what it says cannot differ from what is served.

const eventStream = "text/event-stream"

func (s *Server) openapi(c *call) error {
	return putJSON(&c.Response, document(s.shows(), s.changes()))
}

type object = map[string]any

// document is the whole of it. Equal routes give equal bytes: keys are sorted when
// it is encoded.
func document(lists ...[]route) object {
	schemas, paths := schemas{}, object{}
	for _, r := range slices.Concat(lists...) {
		at, ok := paths[r.path].(object)
		if !ok {
			at = object{}
			paths[r.path] = at
		}
		at[strings.ToLower(r.method)] = schemas.operation(r)
	}
	refusal := schemas.of(reflect.TypeOf(api.Error{}))
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "starling admin API", "version": "v1", "description": "Fields may be added to answers; readers ignore what they do not know. Bodies are read strictly."},
		"paths":   paths,
		"components": object{
			"schemas":         object(schemas),
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
			"responses": object{"Refusal": object{
				"description": "Why not", "content": object{"application/json": object{"schema": refusal}},
				"headers": object{"X-Starling-Error": object{"schema": object{"type": "string", "enum": codeWords()}}, "X-Request-Id": object{"schema": object{"type": "string"}}},
			}},
		},
	}
}

// codes lists every Code.
func codes() []Code {
	return []Code{
		BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, RequestTimeout, Conflict,
		BodyTooLarge, HeaderTooLarge, Internal, NotReady, TooManyConnections,
	}
}

func codeWords() (words []string) {
	for _, c := range codes() {
		words = append(words, string(c))
	}
	return words
}

// refuses are the codes that a route may answer with, besides those of any request
// that cannot be read.
func (r *route) refuses() []Code {
	all := append([]Code{BadRequest, Internal}, r.codes...)
	if r.who != everyone {
		all = append(all, Unauthorized, Forbidden)
	}
	if strings.Contains(r.path, "{") {
		all = append(all, NotFound)
	}
	if r.method != "GET" {
		all = append(all, Conflict, Forbidden)
	}
	return all
}

// schemas are the types that were met, by name.
type schemas object

func (s schemas) operation(r route) object {
	answer := object{"description": r.says}
	switch gives := r.gives.(type) {
	case string:
		answer["content"] = object{"text/plain": object{"schema": object{"type": "string"}}}
	case nil:
		answer["content"] = object{"application/json": object{"schema": object{"type": "object", "additionalProperties": false}}}
	default:
		mime := r.mime
		if mime == "" {
			mime = "application/json"
		}
		answer["content"] = object{mime: object{"schema": s.of(reflect.TypeOf(gives))}}
	}
	answers := object{"200": answer}
	for _, c := range r.refuses() {
		text, _ := json.Marshal(c.Status()) // a number
		answers[string(text)] = object{"$ref": "#/components/responses/Refusal"}
	}
	op := object{"summary": r.says, "responses": answers, "operationId": operationID(r)}
	if r.who != everyone {
		op["security"] = []object{{}, {"token": []string{}}} // what the configuration says decides
	}
	if list := parameters(r); len(list) > 0 {
		op["parameters"] = list
	}
	if r.takes != nil {
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.body(reflect.TypeOf(r.takes))}}}
	}
	return op
}

// operationID is the method and the words of the path.
func operationID(r route) string {
	words := strings.FieldsFunc(strings.TrimPrefix(r.path, "/v1"), func(c rune) bool { return strings.ContainsRune("/{}.", c) })
	return strings.Join(append([]string{strings.ToLower(r.method)}, words...), "_")
}

func parameters(r route) (list []object) {
	for _, segment := range strings.Split(r.path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			list = append(list, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, name := range r.query {
		form := object{"type": "integer"}
		if name == "scope" {
			form = object{"type": "string", "enum": []string{"node", "cluster"}}
		}
		list = append(list, object{"name": name, "in": "query", "schema": form})
	}
	return list
}

// body is a type as it is read: a field that is left out is as if it were zero.
func (s schemas) body(t reflect.Type) object {
	name := t.Name() + "Body"
	form := s.form(t)
	delete(form, "required")
	s[name] = form
	return object{"$ref": "#/components/schemas/" + name}
}

// of is the schema of a type, or a reference to it.
func (s schemas) of(t reflect.Type) object {
	if words := enum(t); words != nil {
		return object{"type": "string", "enum": words}
	}
	switch {
	case t == reflect.TypeOf(time.Time{}):
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Struct:
		if _, known := s[t.Name()]; !known {
			s[t.Name()] = object{} // it may hold itself
			s[t.Name()] = s.form(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []object{s.of(t.Elem()), {"type": "null"}}}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Interface:
		return object{}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	default:
		return object{"type": "integer"}
	}
}

// form is a struct: every field that is never left out is required.
func (s schemas) form(t reflect.Type) object {
	fields, required := object{}, []string{}
	for i := range t.NumField() {
		name, opts, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = s.of(t.Field(i).Type)
		if opts == "" {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": fields, "required": required}
}

// enum are the words of a closed list; nil: the type is none.
func enum(t reflect.Type) []string {
	for _, list := range api.Lists() {
		v := reflect.ValueOf(list)
		if v.Type().Elem() != t {
			continue
		}
		var words []string
		for i := range v.Len() {
			words = append(words, v.Index(i).String())
		}
		return words
	}
	return nil
}
