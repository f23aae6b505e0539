package util // want room
